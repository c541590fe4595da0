"""Objects are followed through bookmarks, expiry, outages and silence, and nothing is missed or told twice."""

import asyncio
import contextlib
import random

import pytest

from gpu_dra.core.clock import FakeClock
from gpu_dra.kube.api import RESOURCE_SLICES
from gpu_dra.kube.errors import Forbidden, Gone, TooManyRequests, Unavailable
from gpu_dra.kube.fake import FakeKubeApi
from gpu_dra.kube.rest import Verb
from gpu_dra.kube.watch import REQUEST_SECONDS, SILENCE_SECONDS, Changed, Deleted, Listed, Selection, follow

SLICES = Selection(resource=RESOURCE_SLICES, fields={"spec.nodeName": "a"})


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def api(clock):
    return FakeKubeApi(clock=clock)


@pytest.fixture
async def told(api, clock):
    """What a follower is told, in short: `+name`, `-name`, and `=` for a complete list."""
    told = []

    async def run():
        async with contextlib.aclosing(follow(api, SLICES, clock=clock, randomness=random.Random(1))) as changes:
            async for change in changes:
                told.append(_short(change))  # noqa: PERF401 — each as it comes, this never ends

    task = asyncio.create_task(run())
    await clock.settle()
    yield told
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


def put(api, name, node="a"):
    return api.store.create(RESOURCE_SLICES, {"metadata": {"name": name}, "spec": {"nodeName": node}})


def touch(api, name):
    item = api.store.get(RESOURCE_SLICES, name)
    item["spec"]["touched"] = item["spec"].get("touched", 0) + 1
    api.store.update(RESOURCE_SLICES, item)


def requests(api, verb):
    return sum(call.verb is verb for call in api.calls)


@pytest.fixture
def stored(api):
    put(api, "one")
    put(api, "strange", node="b")


async def test_what_is_there_is_told_before_the_list_is_complete(stored, told):
    assert told == ["+one", "="]


async def test_changes_are_told_as_they_happen(stored, told, api, clock):
    touch(api, "one")
    put(api, "two")
    api.store.delete(RESOURCE_SLICES, "one")
    await clock.settle()
    assert told[2:] == ["+one", "+two", "-one"]


async def test_a_request_that_ends_goes_on_from_the_last_bookmark_without_a_new_list(stored, told, api, clock):
    for _ in range(6):
        await clock.advance(max(REQUEST_SECONDS))
    put(api, "two")
    await clock.advance(1)
    assert told == ["+one", "=", "+two"]
    assert requests(api, Verb.LIST) == 1
    assert requests(api, Verb.WATCH) > 5


async def test_an_object_that_went_while_the_server_forgot_is_told_to_be_gone(stored, told, api, clock):
    """A 410 in the running watch: the deletion is in no event any more, only in the difference of two lists."""
    put(api, "two")
    await clock.settle()
    api.break_watches(Gone("too old"))
    touch(api, "two")
    api.store.delete(RESOURCE_SLICES, "one")
    api.store.forget_history()
    await clock.advance(5)
    assert told[3:] == ["-one", "+two", "="]


async def test_a_version_that_expired_during_an_outage_leads_to_a_new_list(stored, told, api, clock):
    """A 410 at the start of a watch, as an HTTP status."""
    with api.outage():
        await clock.advance(120)
        api.store.delete(RESOURCE_SLICES, "one")
        api.store.forget_history()
    await clock.advance(60)
    assert told[2:] == ["-one", "="]


async def test_an_object_made_again_under_its_name_was_deleted_first(stored, told, api, clock):
    api.break_watches(Gone("too old"))
    api.store.delete(RESOURCE_SLICES, "one")
    put(api, "one")
    await clock.advance(5)
    assert told[2:] == ["-one", "+one", "="]


async def test_a_short_outage_needs_no_new_list(stored, told, api, clock):
    with api.outage():
        await clock.advance(10)
        put(api, "two")
    await clock.advance(60)
    assert told == ["+one", "=", "+two"]
    assert requests(api, Verb.LIST) == 1


async def test_tries_become_rare_in_a_long_outage(told, api, clock):
    with api.outage():
        await clock.advance(600)
    assert requests(api, Verb.WATCH) < 50


async def test_a_list_that_fails_is_tried_again(api, clock):
    api.fail(Unavailable("starting"), verb=Verb.LIST, times=3)
    put(api, "one")
    async with contextlib.aclosing(follow(api, SLICES, clock=clock)) as changes, asyncio.TaskGroup() as group:
        first = group.create_task(anext(changes))
        await clock.advance(10)
    assert _short(first.result()) == "+one"


async def test_a_server_that_asks_to_wait_is_given_that_time(api, clock):
    api.fail(TooManyRequests("busy", retry_after=100), verb=Verb.LIST)
    async with contextlib.aclosing(follow(api, SLICES, clock=clock)) as changes, asyncio.TaskGroup() as group:
        first = group.create_task(anext(changes))
        await clock.advance(99)
        before = requests(api, Verb.LIST)
        await clock.advance(2)
    assert (before, _short(first.result())) == (1, "=")


async def test_a_watch_that_falls_silent_is_given_up_and_nothing_is_missed(stored, told, api, clock):
    """A connection can die without a word; no error ever comes from it."""
    api.hang_watches()
    put(api, "two")
    await clock.advance(SILENCE_SECONDS + 5)
    assert told == ["+one", "=", "+two"]


async def test_a_missing_right_is_not_waited_out(api, clock):
    api.fail(Forbidden("no"), verb=Verb.LIST)
    async with contextlib.aclosing(follow(api, SLICES, clock=clock)) as changes:
        with pytest.raises(Forbidden):
            await anext(changes)


async def test_requests_of_many_nodes_do_not_end_together(api, clock):
    lengths = set()
    for seed in range(10):
        async with contextlib.aclosing(follow(api, SLICES, clock=clock, randomness=random.Random(seed))) as changes:
            await anext(changes)
            async with asyncio.TaskGroup() as group:
                waiting = group.create_task(_next_or_none(changes))
                await clock.settle()
                started, before = clock.monotonic(), requests(api, Verb.WATCH)
                while requests(api, Verb.WATCH) == before:
                    await clock.advance(1)
                lengths.add(clock.monotonic() - started)
                waiting.cancel()
    assert all(min(REQUEST_SECONDS) <= length <= max(REQUEST_SECONDS) + 2 for length in lengths)
    assert len(lengths) > 5


async def _next_or_none(changes):
    with contextlib.suppress(asyncio.CancelledError):
        return await anext(changes)


def _short(change):
    match change:
        case Changed(object=item):
            return f"+{item['metadata']['name']}"
        case Deleted(object=item):
            return f"-{item['metadata']['name']}"
        case Listed():
            return "="
