"""Registration, updates, probes and metrics of a running plugin."""

from __future__ import annotations

import signal

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from gpu_dra.kube.api import RESOURCE_SLICES
from tests.component.plugin import free_endpoint, get, prepared, refused, unprepared
from tests.support.fake_kubelet import FakeKubelet, watch_health

SUCCESSOR = "0a1b2c3d-0000-4000-8000-000000000001"
"""Pod UID of the second plugin."""


@pytest.fixture
def endpoint():
    return free_endpoint()


async def is_ready(endpoint):
    return (await get(endpoint, "/readyz"))[0] == 200


async def test_every_gpu_is_published_and_owned_by_the_node(world, plugin):
    assert sorted(await world.devices()) == [f"gpu-{minor}" for minor in range(8)]
    (piece,) = await world.slices()
    assert piece["metadata"]["ownerReferences"][0]["kind"] == "Node"


async def test_an_unchanged_node_writes_nothing_after_a_restart(world, plugin, endpoint):
    await world.kill()
    writes = len(world.api.writes)
    await world.registered("--http-endpoint", endpoint)
    await world.until("readiness", lambda: is_ready(endpoint))
    assert len(world.api.writes) == writes


async def test_two_plugins_overlap_in_an_update_and_one_publishes(world, plugin):
    """The first keeps working until it stops; its successor then publishes, and no slice is written anew."""
    ref = await world.claims.create("gpu-0")
    await prepared(plugin, ref)
    (before,) = await world.slices()
    await world.start("--pod-uid", SUCCESSOR)
    successor = await world.kubelet.register()
    assert await prepared(successor, ref) == ["gpu-0"]
    world.processes[0].send_signal(signal.SIGTERM)
    await world.processes[0].wait()
    assert await prepared(successor, await world.claims.create("gpu-1")) == ["gpu-1"]
    (after,) = await world.slices()
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    await world.api.delete(RESOURCE_SLICES, after["metadata"]["name"])
    await world.until("the successor's slice", world.slices, within=5)


async def test_readiness_tells_what_is_missing_until_nothing_is(world, endpoint):
    world.kubelet.refuse = "name is taken"
    await world.registered("--http-endpoint", endpoint)
    await world.until("the slices", world.devices)
    status, text = await get(endpoint, "/readyz")
    assert status == 503
    assert "name is taken" in text
    world.kubelet = FakeKubelet(world.host.registry)
    await world.kubelet.register()
    assert await is_ready(endpoint)


async def test_liveness_asks_the_sockets(world, endpoint):
    await world.registered("--http-endpoint", endpoint)
    assert (await get(endpoint, "/healthz"))[0] == 200
    (world.host.data / "dra.sock").unlink()
    status, text = await get(endpoint, "/healthz")
    assert status == 503
    assert "dra.sock" in text


async def test_grpc_health_tells_liveness_and_readiness_apart(world):
    """A kubelet that refuses the plugin is no reason to restart it."""
    port = free_endpoint().rpartition(":")[2]
    world.kubelet.refuse = "name is taken"
    await world.registered("--healthcheck-port", port)
    await world.until("the slices", world.devices)
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        health = health_pb2_grpc.HealthStub(channel)

        async def status(service):
            return (await health.Check(health_pb2.HealthCheckRequest(service=service), timeout=5)).status

        assert await status("liveness") == health_pb2.HealthCheckResponse.SERVING
        assert await status("") == health_pb2.HealthCheckResponse.NOT_SERVING
        world.kubelet = FakeKubelet(world.host.registry)
        await world.kubelet.register()
        assert await status("") == health_pb2.HealthCheckResponse.SERVING


@pytest.mark.parametrize("version", ["v1", "v1alpha1"])
async def test_the_health_stream_begins_with_every_device(plugin, version):
    reports = watch_health(plugin, version=version)
    assert await anext(reports) == {f"gpu-{minor}": (1, "") for minor in range(8)}
    await reports.aclose()


async def test_claims_of_both_plugins_of_an_update_are_known_to_both(world, plugin):
    await world.start("--pod-uid", SUCCESSOR)
    successor = await world.kubelet.register()
    first, second = await world.claims.create("gpu-0"), await world.claims.create("gpu-1")
    await prepared(plugin, first)
    await prepared(successor, second)
    assert second.name in await refused(plugin, await world.claims.create("gpu-1"))
    assert first.name in await refused(successor, await world.claims.create("gpu-0"))
    await unprepared(successor, first)
    await unprepared(plugin, second)
    assert world.host.is_empty()


async def test_sockets_that_a_killed_plugin_left_are_replaced(world, plugin):
    await world.kill()
    assert list(world.host.registry.iterdir())
    plugin = await world.registered()
    assert await prepared(plugin, await world.claims.create("gpu-0")) == ["gpu-0"]


async def test_a_simulated_machine_serves_claims_without_any_gpu(world):
    plugin = await world.registered("--simulate", "h100x8")
    await world.until("the slices", world.devices)
    ref = await world.claims.create("gpu-3")
    assert await prepared(plugin, ref) == ["gpu-3"]
    assert "/dev/nvidia" not in world.host.spec(ref).read_text()


async def test_metrics_count_what_happened_under_the_names_of_nvidias_driver(world, endpoint):
    plugin = await world.registered("--http-endpoint", endpoint)
    await world.until("the slices", world.devices)
    await prepared(plugin, await world.claims.create("gpu-0"))
    await refused(plugin, await world.claims.create("gpu-0"))
    _, text = await get(endpoint, "/metrics")
    for sample in (
        'nvidia_dra_requests_total{driver="gpu.nvidia.com",operation="prepare"} 2.0',
        'nvidia_dra_node_prepare_errors_total{driver="gpu.nvidia.com",error_type="Conflict"} 1.0',
        'nvidia_dra_requests_inflight{driver="gpu.nvidia.com",operation="prepare"} 0.0',
        'nvidia_dra_prepared_devices{device_type="gpu",driver="gpu.nvidia.com",node="node-a"} 1.0',
        "gpu_dra_published_devices 8.0",
        'gpu_dra_slice_writes_total{verb="create"} 1.0',
        'gpu_dra_driver_ready{state="Ready"} 1.0',
    ):
        assert sample in text
