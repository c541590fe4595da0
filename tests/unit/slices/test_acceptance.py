"""What is done about a server that does not keep what it was sent."""

import pytest

from gpu_dra.slices.acceptance import Acceptance
from tests.unit.slices.samples import device, names, pool

TAINT = {"key": "gpu.nvidia.com/unhealthy", "effect": "NoSchedule"}


@pytest.fixture
def acceptance():
    return Acceptance()


def test_what_was_stored_as_sent_changes_nothing(acceptance):
    assert acceptance.learn([device("a")], [device("a")]) == ()
    assert acceptance.adapt(pool((device("a"),))) == pool((device("a"),))


@pytest.mark.parametrize(
    ("restraint", "gate"),
    [({"taints": [TAINT]}, "DRADeviceTaints"), ({"consumesCounters": [{"counterSet": "c"}]}, "DRAPartitionableDevices")],
)
def test_a_device_that_lost_what_restrains_it_is_withdrawn_and_the_gate_named(acceptance, restraint, gate):
    """Without its taint a sick GPU looks well; without its counters a partition may be given out twice."""
    (report,) = acceptance.learn([device("a", **restraint), device("b")], [device("a"), device("b")])
    assert names(acceptance.adapt(pool((device("a", **restraint), device("b"))))) == [["b"]]
    assert gate in report.reason


def test_the_same_device_without_the_restraint_is_offered_again(acceptance):
    acceptance.learn([device("a", taints=[TAINT])], [device("a")])
    assert names(acceptance.adapt(pool((device("a"),)))) == [["a"]]


def test_any_other_loss_is_accepted_so_that_it_is_not_sent_for_ever(acceptance):
    sent = device("a", bindingConditions=["x"])
    (report,) = acceptance.learn([sent], [device("a")])
    assert acceptance.adapt(pool((sent,))).slices[0].devices == (device("a"),)
    assert "bindingConditions" in report.reason


def test_a_device_the_server_added_something_to_is_accepted_as_stored(acceptance):
    """A default of a newer server is no drift."""
    stored = device("a", newField={"x": 1})
    acceptance.learn([device("a")], [stored])
    assert acceptance.adapt(pool((device("a"),))).slices[0].devices == (stored,)


def test_a_device_that_was_not_stored_at_all_is_not_sent_again(acceptance):
    acceptance.learn([device("a"), device("b")], [device("b")])
    assert names(acceptance.adapt(pool((device("a"), device("b"))))) == [["b"]]


def test_a_gpu_that_turns_sick_again_is_not_offered_for_a_moment(acceptance):
    """What was learned of a content stays: the next write would offer the GPU until its answer came back."""
    sick = device("a", taints=[TAINT])
    acceptance.learn([sick], [device("a")])
    assert names(acceptance.adapt(pool((sick,)))) == [[]]
    assert names(acceptance.adapt(pool((device("a"),)))) == [["a"]]
    assert names(acceptance.adapt(pool((sick,)))) == [[]]
