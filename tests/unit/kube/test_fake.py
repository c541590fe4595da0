"""The API fake fails, forgets and refuses on demand, and remembers what it was asked."""

import asyncio
import contextlib

import pytest

from gpu_dra.core.clock import FakeClock
from gpu_dra.kube.api import NODES, RESOURCE_CLAIMS, RESOURCE_SLICES
from gpu_dra.kube.errors import Gone, Invalid, NotFound, Unavailable
from gpu_dra.kube.fake import BOOKMARK_SECONDS, FakeKubeApi
from gpu_dra.kube.fake_store import HISTORY
from gpu_dra.kube.rest import Call, Verb


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def api(clock):
    return FakeKubeApi(clock=clock)


def slice_named(name):
    return {"metadata": {"name": name}, "spec": {"devices": [{"name": "gpu-0", "taints": [{"key": "x"}]}]}}


async def test_a_failure_strikes_the_calls_it_names_and_as_often_as_it_says(api):
    api.fail(Unavailable("struck"), verb=Verb.CREATE, resource=RESOURCE_SLICES, times=2)
    await api.create(NODES, {"metadata": {"name": "a"}})
    for _ in range(2):
        with pytest.raises(Unavailable, match="struck"):
            await api.create(RESOURCE_SLICES, slice_named("s"))
    await api.create(RESOURCE_SLICES, slice_named("s"))


async def test_an_answer_can_be_lost_after_the_write_was_done(api):
    """What a retry meets when the connection broke at the wrong moment."""
    api.fail(Unavailable("lost"), verb=Verb.CREATE, answer_lost=True)
    with pytest.raises(Unavailable, match="lost"):
        await api.create(RESOURCE_SLICES, slice_named("s"))
    assert (await api.get(RESOURCE_SLICES, "s"))["metadata"]["name"] == "s"


async def test_a_delay_is_as_long_as_the_clock_says(api, clock):
    api.delay(3, verb=Verb.GET)
    api.store.create(NODES, {"metadata": {"name": "a"}})
    getting = asyncio.ensure_future(api.get(NODES, "a"))
    await clock.advance(2.9)
    assert not getting.done()
    await clock.advance(0.2)
    assert getting.done()
    await getting


async def test_an_outage_fails_every_call_and_breaks_watches_off(api, clock):
    watch = api.watch(NODES, resource_version=api.store.version)
    async with contextlib.aclosing(watch):
        waiting = asyncio.ensure_future(anext(watch))
        await clock.settle()
        with api.outage():
            with pytest.raises(Unavailable):
                await api.list(NODES)
            with pytest.raises(Unavailable):
                await waiting
    assert (await api.list(NODES)).items == ()


async def test_every_call_is_remembered_and_writes_can_be_counted(api):
    await api.list(NODES)
    await api.create(RESOURCE_SLICES, slice_named("s"))
    with pytest.raises(NotFound):
        await api.delete(RESOURCE_SLICES, "t")
    assert [str(call) for call in api.calls] == [
        "list nodes",
        "create resourceslices.resource.k8s.io",
        "delete resourceslices.resource.k8s.io t",
    ]
    assert api.writes[1] == Call(verb=Verb.DELETE, resource=RESOURCE_SLICES, name="t")
    assert len(api.writes) == 2


async def test_what_somebody_else_does_to_the_store_is_no_call(api):
    api.store.create(NODES, {"metadata": {"name": "a"}})
    assert api.calls == []


async def test_a_server_with_a_feature_gate_off_stores_the_object_without_the_field(api):
    def without_taints(resource, item):
        devices = [{k: v for k, v in device.items() if k != "taints"} for device in item["spec"]["devices"]]
        return item | {"spec": item["spec"] | {"devices": devices}}

    api.store.transforms.append(without_taints)
    stored = await api.create(RESOURCE_SLICES, slice_named("s"))
    assert stored["spec"]["devices"] == [{"name": "gpu-0"}]


async def test_a_server_that_finds_an_object_invalid_stores_nothing(api):
    def refuse(resource, item):
        raise Invalid("spec.devices: too many")

    api.store.validators.append(refuse)
    with pytest.raises(Invalid, match="too many"):
        await api.create(RESOURCE_SLICES, slice_named("s"))
    assert api.store.list(RESOURCE_SLICES) == ()


async def test_an_object_that_was_given_or_read_is_the_callers_own(api):
    """Otherwise a test could change the server's state by mistake and prove the wrong thing."""
    given = slice_named("s")
    read = await api.create(RESOURCE_SLICES, given)
    given["spec"]["devices"].clear()
    read["spec"]["devices"].clear()
    assert len((await api.get(RESOURCE_SLICES, "s"))["spec"]["devices"]) == 1


async def test_history_reaches_back_only_so_far(api):
    start = api.store.version
    node = api.store.create(NODES, {"metadata": {"name": "a"}})
    for number in range(HISTORY):
        node = api.store.update(NODES, node | {"spec": {"number": number}})
    with pytest.raises(Gone, match="too old resource version"):
        await anext(api.watch(NODES, resource_version=start))


async def test_a_watch_sends_a_bookmark_every_minute(api, clock):
    watch = api.watch(NODES, resource_version=api.store.version)
    async with contextlib.aclosing(watch):
        waiting = asyncio.ensure_future(anext(watch))
        await clock.advance(BOOKMARK_SECONDS - 1)
        assert not waiting.done()
        api.store.create(RESOURCE_CLAIMS, {"metadata": {"name": "c"}}, namespace="n")
        await clock.advance(2)
        assert waiting.result().object["metadata"]["resourceVersion"] == api.store.version
