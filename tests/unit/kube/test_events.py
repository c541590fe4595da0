"""Events tell a person what happened, once, and never make anything worse."""

import asyncio
import contextlib

import pytest

from gpu_dra.core.clock import FakeClock
from gpu_dra.kube.api import EVENTS
from gpu_dra.kube.errors import Forbidden, Unavailable
from gpu_dra.kube.events import DIFFERENT_PER_OBJECT, REPEAT_SECONDS, WAITING, EventRecorder, Reference, Severity
from gpu_dra.kube.fake import FakeKubeApi
from tests.support.oracle import check_payload

CLAIM = Reference(api_version="resource.k8s.io/v1", kind="ResourceClaim", namespace="team", name="a", uid="uid-a")
NODE = Reference(api_version="v1", kind="Node", name="node-a", uid="uid-node")


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def api(clock):
    return FakeKubeApi(clock=clock)


@pytest.fixture
def recorder(api, clock):
    return EventRecorder(api, clock=clock, component="gpu.nvidia.com", instance="node-a")


@pytest.fixture
async def running(recorder, clock):
    task = asyncio.create_task(recorder.run())
    await clock.settle()
    yield recorder
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


def say(recorder, message="the GPU is held", about=CLAIM):
    recorder.record(about, severity=Severity.WARNING, reason="PrepareFailed", message=message)


async def test_an_event_says_who_what_and_about_which_object(running, api, clock):
    say(running)
    await clock.settle()
    (event,) = api.store.list(EVENTS, namespace="team")
    assert event["involvedObject"]["uid"] == "uid-a"
    assert (event["type"], event["reason"], event["message"]) == ("Warning", "PrepareFailed", "the GPU is held")
    assert (event["source"], event["count"]) == ({"component": "gpu.nvidia.com", "host": "node-a"}, 1)
    check_payload(event)


async def test_an_event_about_a_node_goes_to_the_default_namespace(running, api, clock):
    say(running, about=NODE)
    await clock.settle()
    assert len(api.store.list(EVENTS, namespace="default")) == 1


async def test_the_same_thing_said_often_is_one_event_with_a_count(running, api, clock):
    for _ in range(50):
        say(running)
        await clock.advance(REPEAT_SECONDS / 10)
    (event,) = api.store.list(EVENTS)
    assert event["count"] > 40
    assert len(api.writes) <= 6


async def test_an_object_is_not_flooded_with_different_events(running, api, clock):
    for number in range(100):
        say(running, message=f"reason {number}")
        await clock.advance(1)
    assert len(api.store.list(EVENTS)) == DIFFERENT_PER_OBJECT


async def test_an_object_that_is_spoken_of_for_days_is_never_fallen_silent_about(running, api, clock):
    """An agent speaks of one Node only, and the API server forgets its Events after an hour."""
    for day in range(2 * DIFFERENT_PER_OBJECT):
        say(running, f"day {day}")
        await clock.advance(86_400)
    assert len(api.store.list(EVENTS)) == 2 * DIFFERENT_PER_OBJECT


async def test_an_event_that_expired_on_the_server_is_made_anew(running, api, clock):
    say(running)
    await clock.settle()
    (event,) = api.store.list(EVENTS)
    api.store.delete(EVENTS, event["metadata"]["name"], namespace="team")
    await clock.advance(REPEAT_SECONDS + 1)
    say(running)
    await clock.settle()
    assert [event["count"] for event in api.store.list(EVENTS)] == [2]


@pytest.mark.parametrize("error", [Unavailable("away"), Forbidden("no")])
async def test_an_event_that_cannot_be_written_disturbs_nobody(running, api, clock, error):
    api.fail(error)
    say(running, message="lost")
    await clock.advance(1)
    say(running, message="kept")
    await clock.advance(1)
    assert [event["message"] for event in api.store.list(EVENTS)] == ["kept"]


async def test_recording_never_waits_and_drops_what_is_too_much(recorder, api, clock):
    for number in range(2 * WAITING):
        say(recorder, about=Reference(api_version="v1", kind="Pod", namespace="team", name=f"p{number}", uid=f"uid-{number}"))
    writing = asyncio.ensure_future(recorder.run())
    await clock.advance(60)
    writing.cancel()
    assert len(api.store.list(EVENTS)) == WAITING


async def test_a_message_longer_than_the_server_takes_is_cut(running, api, clock):
    say(running, message="x" * 5000)
    await clock.settle()
    assert len(api.store.list(EVENTS)[0]["message"]) == 1024
