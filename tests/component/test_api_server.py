"""An API server that is away, busy, forgetful or forbidding, and people who touch our slices: the node goes on and heals by itself."""

from __future__ import annotations

import asyncio

import pytest

from gpu_dra.core.errors import Broken
from gpu_dra.kube.api import NODES, RESOURCE_CLAIMS, RESOURCE_SLICES
from gpu_dra.kube.errors import Forbidden, Gone, TooManyRequests, Unavailable
from gpu_dra.kube.rest import Verb
from tests.component.plugin import NODE, free_endpoint, get, prepared, refused, unprepared

FAILURES = {
    "429": TooManyRequests("slow down", retry_after=0.2),
    "500": Broken("etcdserver: request timed out"),
    "503": Unavailable("down"),
    "403": Forbidden('User "gpu-dra" cannot do this'),
}


@pytest.mark.parametrize("failure", FAILURES)
async def test_slices_that_cannot_be_written_are_tried_again(world, failure):
    world.api.fail(FAILURES[failure], verb=Verb.CREATE, resource=RESOURCE_SLICES, times=2)
    await world.registered()
    await world.until("the slice", world.devices, within=20)


@pytest.mark.parametrize("failure", sorted(FAILURES.keys() - {"429"}))
async def test_a_claim_that_cannot_be_read_is_told_why_and_prepared_in_the_next_try(world, plugin, failure):
    ref = await world.claims.create("gpu-0")
    world.api.fail(FAILURES[failure], verb=Verb.GET, resource=RESOURCE_CLAIMS)
    assert str(FAILURES[failure]) in await refused(plugin, ref)
    assert world.host.is_empty()
    assert await prepared(plugin, ref) == ["gpu-0"]


async def test_a_busy_server_is_given_the_time_it_asks_for_within_the_call(world, plugin):
    ref = await world.claims.create("gpu-0")
    world.api.fail(FAILURES["429"], verb=Verb.GET, resource=RESOURCE_CLAIMS, times=2)
    assert await prepared(plugin, ref) == ["gpu-0"]


async def test_a_server_that_is_away_at_the_start_is_waited_for(world):
    endpoint = free_endpoint()
    await world.server.stop()
    await world.registered("--http-endpoint", endpoint)
    assert (await get(endpoint, "/healthz"))[0] == 200
    assert (await get(endpoint, "/readyz"))[0] == 503
    await world.server.start()
    await world.until("the slices", world.devices, within=30)


async def test_a_server_that_goes_away_stops_new_claims_only(world, plugin):
    held, late = await world.claims.create("gpu-0"), await world.claims.create("gpu-1")
    await prepared(plugin, held)
    before = await world.slices()
    await world.server.stop()
    assert "connect" in await refused(plugin, late)
    assert await prepared(plugin, held) == ["gpu-0"]
    await unprepared(plugin, held)
    await world.server.start()
    assert await prepared(plugin, late) == ["gpu-1"]
    assert await world.slices() == before


async def test_a_claim_whose_read_takes_long_does_not_hold_up_another(world, plugin):
    slow, quick = await world.claims.create("gpu-0"), await world.claims.create("gpu-1")
    world.api.delay(3, verb=Verb.GET, resource=RESOURCE_CLAIMS, name=slow.name)
    waiting = asyncio.create_task(prepared(plugin, slow))
    async with asyncio.timeout(2):
        assert await prepared(plugin, quick) == ["gpu-1"]
    assert not waiting.done()
    assert await waiting == ["gpu-0"]


async def test_an_unprepare_that_overtakes_a_slow_prepare_leaves_nothing(world, plugin):
    """The kubelet gives up on the pod while its prepare still waits for the API."""
    ref = await world.claims.create("gpu-0")
    world.api.delay(1, verb=Verb.GET, resource=RESOURCE_CLAIMS, name=ref.name)
    late = asyncio.create_task(prepared(plugin, ref))
    await world.until("the read begun", lambda: asked_for(world, ref))
    await unprepared(plugin, ref)
    await late
    assert world.host.is_empty()


async def asked_for(world, ref):
    return [call for call in world.api.calls if call.verb is Verb.GET and call.name == ref.name]


async def test_a_slice_deleted_by_hand_is_back_within_two_seconds(world, plugin):
    await delete_slice(world)
    await world.until("the slice back", world.slices, within=2)


async def test_an_edited_slice_is_put_right(world, plugin):
    (piece,) = await world.slices()
    piece["spec"]["devices"] = piece["spec"]["devices"][:3]
    await world.api.update(RESOURCE_SLICES, piece)
    await world.until("all devices back", lambda: count_is(world, 8), within=2)


async def count_is(world, count):
    return len(await world.devices()) == count


async def test_a_slice_deleted_while_the_watch_had_expired_is_back(world, plugin):
    """410 Gone: the server's history no longer reaches back to where the watch was."""
    world.api.break_watches(Gone("too old resource version"))
    await delete_slice(world)
    await world.until("the slice back", world.slices, within=5)


async def test_after_a_kubelet_start_the_slices_are_there_again(world, plugin):
    """It deletes them all and registers plugins anew."""
    await delete_slice(world)
    await world.kubelet.close()
    await world.kubelet.register()
    await world.until("the slice back", world.slices, within=2)


async def test_slices_of_a_node_that_was_made_anew_belong_to_the_new_node(world, plugin):
    await world.api.delete(NODES, NODE)
    node = await world.api.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}})
    await delete_slice(world)

    async def owned():
        return [
            piece for piece in await world.slices() if piece["metadata"]["ownerReferences"][0]["uid"] == node["metadata"]["uid"]
        ]

    await world.until("a slice of the new node", owned, within=5)


async def test_a_missing_right_is_what_readiness_tells(world):
    endpoint = free_endpoint()
    right = 'User "gpu-dra" cannot create resource "resourceslices"'
    world.api.fail(Forbidden(right), verb=Verb.CREATE, resource=RESOURCE_SLICES, times=3)
    await world.registered("--http-endpoint", endpoint)
    await world.until("the reason", lambda: ready_says(endpoint, right))
    await world.until("readiness", lambda: ready_says(endpoint, "ok"), within=30)


async def ready_says(endpoint, words):
    return words in (await get(endpoint, "/readyz"))[1]


async def delete_slice(world):
    (piece,) = await world.slices()
    await world.api.delete(RESOURCE_SLICES, piece["metadata"]["name"])
