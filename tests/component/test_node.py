"""Registration, slices, health, probes and metrics of a running plugin, on good days and bad."""

from __future__ import annotations

import asyncio
import signal
import socket

import aiohttp
import pytest

from gpu_dra.kube.api import RESOURCE_SLICES
from gpu_dra.kube.errors import Forbidden, TooManyRequests, Unavailable
from gpu_dra.kube.rest import Verb
from tests.component.plugin import prepared
from tests.support.fake_kubelet import FakeKubelet, watch_health


@pytest.fixture
def endpoint():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


async def get(endpoint, path):
    async with aiohttp.ClientSession() as session, session.get(f"http://{endpoint}{path}") as response:
        return response.status, await response.text()


async def test_every_gpu_is_published_and_owned_by_the_node(world, plugin):
    assert sorted(await world.devices()) == [f"gpu-{minor}" for minor in range(8)]
    (piece,) = await world.slices()
    assert piece["metadata"]["ownerReferences"][0]["kind"] == "Node"


async def test_an_unchanged_node_writes_nothing_after_a_restart(world, plugin):
    await world.kill()
    writes = len(world.api.writes)
    await world.registered()
    await asyncio.sleep(1.5)
    assert len(world.api.writes) == writes


async def test_a_slice_deleted_by_hand_is_back_within_two_seconds(world, plugin):
    (piece,) = await world.slices()
    await world.api.delete(RESOURCE_SLICES, piece["metadata"]["name"])
    await world.until("the slice back", world.slices, within=2)


async def test_after_a_kubelet_start_the_slices_are_there_again(world, plugin):
    """It deletes them all and registers plugins anew."""
    (piece,) = await world.slices()
    await world.api.delete(RESOURCE_SLICES, piece["metadata"]["name"])
    await world.kubelet.close()
    await world.kubelet.register()
    await world.until("the slice back", world.slices, within=2)


async def test_a_kubelet_is_answered_from_memory_while_nvml_hangs(world):
    world.host.mock.fault("nvmlDeviceGetUUID", hang=True)
    plugin = await world.registered()
    assert plugin.info.name == "gpu.nvidia.com"
    world.host.mock.clear_faults()


async def test_a_driver_that_comes_later_is_noticed_without_a_restart(world):
    world.host.mock.driver_loaded(loaded=False)
    await world.registered()
    await world.until("the reason", lambda: says(world, "kernel driver is not loaded"))
    world.host.mock.driver_loaded(loaded=True)
    await world.until("the devices", world.devices, within=20)


async def says(world, words):
    return words in world.log.read_text()


async def test_a_gpu_that_errors_leaves_the_others_published(world):
    world.host.mock.fault("nvmlDeviceGetUUID", gpu=3, error=999)
    await world.registered()
    devices = await world.until("the devices", world.devices)
    assert sorted(devices) == [f"gpu-{minor}" for minor in range(8) if minor != 3]


async def test_a_lost_gpu_is_tainted_and_unhealthy_and_heals(world, plugin):
    world.host.mock.lose(5)

    async def tainted():
        return bool((await world.devices())["gpu-5"].get("taints"))

    async def clean():
        return not await tainted()

    await world.until("the taint", tainted)
    async for report in watch_health(plugin):
        if report["gpu-5"][0] == 2:
            assert report["gpu-4"][0] == 1
            break
    world.host.mock.restore(5)
    await world.until("no taint", clean, within=40)


async def test_a_partition_made_by_hand_takes_the_whole_gpus_place(world, plugin):
    world.host.mock.mig_mode(2, enabled=True)
    world.host.mock.partition(2, 9, start=4)

    async def partitioned():
        devices = await world.devices()
        return "gpu-2-mig-3g40gb-9-4" in devices and "gpu-2" not in devices

    await world.until("the partition", partitioned)


async def test_two_plugins_overlap_in_an_update_and_one_publishes(world, plugin):
    """The first keeps working until it stops; its successor then publishes, and no slice is written anew."""
    ref = await world.claims.create("gpu-0")
    await prepared(plugin, ref)
    (before,) = await world.slices()
    await world.start("--pod-uid", "0a1b2c3d-0000-4000-8000-000000000001")
    successor = await world.kubelet.register()
    assert await prepared(successor, ref) == ["gpu-0"]
    world.processes[0].send_signal(signal.SIGTERM)
    await world.processes[0].wait()
    assert await prepared(successor, await world.claims.create("gpu-1")) == ["gpu-1"]
    (after,) = await world.slices()
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    await world.api.delete(RESOURCE_SLICES, after["metadata"]["name"])
    await world.until("the successor's slice", world.slices, within=5)


@pytest.mark.parametrize(
    "error", [Unavailable("down"), TooManyRequests("slow down", retry_after=0.2), Forbidden("User cannot create resourceslices")]
)
async def test_a_server_that_refuses_for_a_while_is_asked_again(world, error):
    world.api.fail(error, verb=Verb.CREATE, resource=RESOURCE_SLICES, times=2)
    await world.registered()
    await world.until("the slice", world.devices, within=20)


async def test_readiness_tells_what_is_missing_until_nothing_is(world, endpoint):
    world.kubelet.refuse = "name is taken"
    await world.registered("--http-endpoint", endpoint)
    await world.until("the slices", world.devices)
    status, text = await get(endpoint, "/readyz")
    assert status == 503
    assert "name is taken" in text
    world.kubelet = FakeKubelet(world.host.registry)
    await world.kubelet.register()
    assert (await get(endpoint, "/readyz"))[0] == 200


async def test_liveness_asks_the_sockets(world, endpoint):
    await world.registered("--http-endpoint", endpoint)
    assert (await get(endpoint, "/healthz"))[0] == 200
    (world.host.data / "dra.sock").unlink()
    status, text = await get(endpoint, "/healthz")
    assert status == 503
    assert "dra.sock" in text


async def test_metrics_count_what_happened_under_the_names_of_nvidias_driver(world, endpoint):
    plugin = await world.registered("--http-endpoint", endpoint)
    await world.until("the slices", world.devices)
    await prepared(plugin, await world.claims.create("gpu-0"))
    _, text = await get(endpoint, "/metrics")
    for sample in (
        'nvidia_dra_requests_total{driver="gpu.nvidia.com",operation="prepare"} 1.0',
        'nvidia_dra_requests_inflight{driver="gpu.nvidia.com",operation="prepare"} 0.0',
        'nvidia_dra_prepared_devices{device_type="gpu",driver="gpu.nvidia.com",node="node-a"} 1.0',
        "gpu_dra_published_devices 8.0",
        'gpu_dra_slice_writes_total{verb="create"} 1.0',
        'gpu_dra_driver_ready{state="Ready"} 1.0',
    ):
        assert sample in text
