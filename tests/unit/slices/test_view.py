"""The stored slices as seen through a list, events and our own writes."""

import pytest

from gpu_dra.slices.view import StoredSlices


@pytest.fixture
def view():
    view = StoredSlices()
    view.replace([slice_("a", "1")])
    return view


def slice_(name, version):
    return {"metadata": {"name": name, "resourceVersion": version}}


def versions(view):
    return {item["metadata"]["name"]: item["metadata"]["resourceVersion"] for item in view.all()}


def test_events_change_what_was_listed(view):
    view.changed(slice_("b", "2"))
    view.changed(slice_("a", "3"))
    assert versions(view) == {"a": "3", "b": "2"}


def test_a_slice_that_is_gone_is_told_once(view):
    assert view.deleted(slice_("a", "2")) is True
    assert view.deleted(slice_("a", "2")) is False
    assert versions(view) == {}


def test_an_event_from_before_our_last_write_is_passed_over(view):
    """It would show our own write as drift, and be answered by a needless one."""
    view.remember(slice_("a", "5"))
    view.changed(slice_("a", "3"))
    assert versions(view) == {"a": "5"}


def test_once_our_own_write_came_by_later_events_count(view):
    view.remember(slice_("a", "5"))
    view.changed(slice_("a", "5"))
    view.changed(slice_("a", "6"))
    assert versions(view) == {"a": "6"}


def test_a_deletion_counts_even_before_the_event_of_our_write(view):
    view.remember(slice_("a", "5"))
    assert view.deleted(slice_("a", "6")) is True
    view.changed(slice_("a", "7"))
    assert versions(view) == {"a": "7"}


def test_a_new_list_begins_again(view):
    view.remember(slice_("a", "5"))
    view.doubtful = True
    view.replace([slice_("b", "8")])
    view.changed(slice_("b", "9"))
    assert versions(view) == {"b": "9"}
    assert view.doubtful is False


def test_an_event_that_overtakes_the_answer_to_our_write_is_not_waited_for_again(view):
    """Watch and answer come over different connections; waiting for what was told already would make us deaf for ever."""
    view.changed(slice_("b", "5"))
    view.remember(slice_("b", "5"))
    view.changed(slice_("b", "6"))
    assert versions(view)["b"] == "6"


def test_what_was_told_after_our_write_is_newer_than_its_late_answer(view):
    view.changed(slice_("a", "5"))
    view.changed(slice_("a", "6"))
    view.remember(slice_("a", "5"))
    assert versions(view) == {"a": "6"}


def test_a_slice_deleted_before_the_answer_to_our_write_stays_deleted(view):
    view.changed(slice_("b", "5"))
    view.deleted(slice_("b", "6"))
    view.remember(slice_("b", "5"))
    assert versions(view) == {"a": "1"}


def test_slices_of_the_past_take_no_memory(view):
    """Each has a name of its own, and the list that would clear them away may be months off."""
    for number in range(500):
        view.changed(slice_(f"s{number}", "1"))
        view.deleted(slice_(f"s{number}", "2"))
    assert len(view._told) <= 64
    assert len(view._gone) <= 64


def test_a_slice_that_lives_is_told_of_however_many_others_go(view):
    view.changed(slice_("b", "5"))
    view.deleted(slice_("b", "6"))
    view.changed(slice_("b", "7"))
    for number in range(100):
        view.changed(slice_(f"s{number}", "1"))
        view.deleted(slice_(f"s{number}", "2"))
    view.remember(slice_("b", "5"))
    assert versions(view)["b"] == "7"
