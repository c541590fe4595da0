"""The gRPC services over real unix sockets, with stand-ins for the rooms behind them."""

import asyncio
import os
import stat
import tempfile
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from gpu_dra.core.clock import FakeClock
from gpu_dra.core.errors import Conflict, NotReady
from gpu_dra.model.claim import ClaimRef
from gpu_dra.model.gpu import Gpu
from gpu_dra.model.inventory import DriverState, Inventory
from gpu_dra.model.pci import PciAddress
from gpu_dra.model.prepared import Phase, PreparedClaim, PreparedDevice
from gpu_dra.node import dra_service, health_stream
from gpu_dra.node.dra_service import DraService
from gpu_dra.node.health_stream import HealthReport, HealthService
from gpu_dra.node.metrics import NodeMetrics
from gpu_dra.node.registration import RegistrationService
from gpu_dra.node.servers import serving
from tests.support.fake_kubelet import FakeKubelet, prepare, unprepare, watch_health


def ref(name: str) -> ClaimRef:
    return ClaimRef(namespace="default", name=name, uid=f"uid-{name}")


def gpu(minor: int, *, unhealthy: str | None = None) -> Gpu:
    return Gpu(minor=minor, uuid=f"GPU-{minor}", pci=PciAddress(0, minor, 0, 0), product_name="GPU", unhealthy=unhealthy)


def counted(metrics: NodeMetrics) -> dict[tuple[str, str], float]:
    """Requests by metric and operation: of the counter and of the histogram."""
    return {
        (sample.name, sample.labels["operation"]): sample.value
        for family in text_string_to_metric_families(metrics.exposition().decode())
        for sample in family.samples
        if sample.name in {"nvidia_dra_requests_total", "nvidia_dra_request_duration_seconds_count"}
    }


class StubClaims:
    """Claims by name: prepared, refused, broken by a defect, or waiting for ever."""

    def __init__(self):
        self.unprepared = []
        self.release = asyncio.Event()

    async def prepare(self, ref):
        match ref.name:
            case "held":
                raise Conflict("gpu-0 is held by claim default/other")
            case "defect":
                raise ZeroDivisionError("1/0")
            case "slow":
                await self.release.wait()
        device = PreparedDevice(
            request="gpu",
            pool="node-a",
            device="gpu-0",
            uuid="GPU-0",
            cdi_ids=(f"k8s.gpu.nvidia.com/claim={ref.uid}-gpu-0",),
            share_id="share-1",
        )
        return PreparedClaim(ref=ref, phase=Phase.DONE, devices=(device,), boot_id="b")

    async def unprepare(self, ref):
        if ref.name == "busy":
            raise NotReady("partition is in use by pid 7")
        self.unprepared.append(ref.name)


class StubInventories:
    def __init__(self, inventory):
        self.current = inventory
        self.age = 0.0
        self._changed = asyncio.Event()

    def set(self, inventory):
        self.current = inventory
        self._changed.set()

    async def changes(self):
        while True:
            yield self.current
            await self._changed.wait()
            self._changed.clear()


@pytest.fixture
def directory():
    with tempfile.TemporaryDirectory(dir="/tmp") as path:
        yield Path(path)


@pytest.fixture
def claims():
    return StubClaims()


@pytest.fixture
def inventories():
    return StubInventories(Inventory(state=DriverState.READY, gpus=(gpu(0), gpu(1))))


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
async def kubelet(directory):
    kubelet = FakeKubelet(directory / "registry")
    kubelet.registry.mkdir()
    yield kubelet
    await kubelet.close()


@pytest.fixture
def registrations():
    return []


@pytest.fixture
async def registration(directory, registrations):
    return RegistrationService(
        driver="gpu.nvidia.com",
        endpoint=directory / "dra.sock",
        versions=(*dra_service.SUPPORTED_VERSIONS, *health_stream.SUPPORTED_VERSIONS),
        on_registered=lambda: registrations.append(True),
    )


@pytest.fixture
async def health(inventories, clock):
    return HealthService(inventories, pool="node-a", clock=clock)


@pytest.fixture
def metrics():
    return NodeMetrics(driver="gpu.nvidia.com", node="node-a")


@pytest.fixture
async def plugin(directory, kubelet, claims, health, registration, metrics):
    service = DraService(claims, metrics)
    handlers = [*service.handlers(), *health.handlers()]
    async with (
        serving(directory / "dra.sock", handlers, grace=1),
        serving(directory / "registry" / "gpu-reg.sock", registration.handlers(), grace=1),
    ):
        yield await kubelet.register()


async def test_the_kubelet_learns_name_endpoint_and_versions_newest_first(plugin, directory):
    assert plugin.info.type == "DRAPlugin"
    assert plugin.info.name == "gpu.nvidia.com"
    assert plugin.info.endpoint == str(directory / "dra.sock")
    assert list(plugin.info.supported_versions) == [
        "v1.DRAPlugin",
        "v1beta1.DRAPlugin",
        "v1.DRAResourceHealth",
        "v1alpha1.DRAResourceHealth",
    ]


async def test_a_confirmed_registration_triggers_publishing(plugin, registration, registrations):
    """The kubelet wipes this node's slices when it starts."""
    assert registration.state.registered
    assert registrations == [True]


async def test_a_refused_registration_is_kept_with_its_reason(directory, kubelet, registration):
    kubelet.refuse = "name already taken"
    async with serving(directory / "registry" / "gpu-reg.sock", registration.handlers(), grace=1):
        await kubelet.register()
    assert not registration.state.registered
    assert "name already taken" in registration.state.reason


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
async def test_a_prepared_claim_names_its_devices_in_both_versions(plugin, version):
    answer = (await prepare(plugin, ref("a"), version=version))["uid-a"]
    (device,) = answer.devices
    assert (list(device.request_names), device.pool_name, device.device_name) == (["gpu"], "node-a", "gpu-0")
    assert list(device.cdi_device_ids) == ["k8s.gpu.nvidia.com/claim=uid-a-gpu-0"]


async def test_the_share_id_is_told_in_v1(plugin):
    answer = (await prepare(plugin, ref("a")))["uid-a"]
    assert answer.devices[0].share_id == "share-1"


async def test_a_claim_that_fails_does_not_take_the_others_of_the_call_with_it(plugin):
    answers = await prepare(plugin, ref("a"), ref("held"), ref("defect"))
    assert [device.device_name for device in answers["uid-a"].devices] == ["gpu-0"]
    assert "held by claim default/other" in answers["uid-held"].error
    assert "gpu-dra failed on claim default/defect" in answers["uid-defect"].error


async def test_a_claim_asked_for_twice_is_answered_once(plugin):
    answers = await prepare(plugin, ref("a"), ref("a"))
    assert len(answers["uid-a"].devices) == 1


async def test_a_slow_claim_does_not_delay_another_call(plugin, claims):
    slow = asyncio.create_task(prepare(plugin, ref("slow")))
    assert (await prepare(plugin, ref("a")))["uid-a"].devices
    claims.release.set()
    assert (await slow)["uid-slow"].devices


async def test_an_empty_call_answers_at_once(plugin):
    """Probes send it."""
    assert await prepare(plugin) == {}


async def test_unprepare_answers_for_each_claim(plugin, claims):
    answers = await unprepare(plugin, ref("a"), ref("busy"))
    assert answers["uid-a"].error == ""
    assert "in use by pid 7" in answers["uid-busy"].error
    assert claims.unprepared == ["a"]


@pytest.mark.parametrize("version", ["v1", "v1alpha1"])
async def test_the_health_stream_starts_with_every_device(plugin, version):
    reports = watch_health(plugin, version=version)
    assert await anext(reports) == {"gpu-0": (1, ""), "gpu-1": (1, "")}
    await reports.aclose()


async def test_the_health_stream_tells_a_change_at_once(plugin, inventories):
    reports = watch_health(plugin)
    await anext(reports)
    inventories.set(Inventory(state=DriverState.READY, gpus=(gpu(0), gpu(1, unhealthy="fell off the bus"))))
    assert (await anext(reports))["gpu-1"] == (2, "fell off the bus")
    await reports.aclose()


async def test_the_health_stream_repeats_itself_well_within_the_kubelets_thirty_seconds(plugin, clock):
    reports = watch_health(plugin)
    first = await anext(reports)
    pending = asyncio.ensure_future(anext(reports))
    for _ in range(15):
        await clock.advance(1)
        await asyncio.wait({pending}, timeout=0.01)  # the report travels in real time
    async with asyncio.timeout(5):
        assert await pending == first
    await reports.aclose()


async def test_what_was_last_seen_long_ago_is_unknown_and_not_healthy(plugin, inventories):
    inventories.age = 1000.0
    reports = watch_health(plugin)
    assert {health for health, _ in (await anext(reports)).values()} == {0}
    await reports.aclose()


async def test_a_stopping_plugin_ends_the_health_stream_itself(plugin, health):
    """The server waits for calls in flight, and the kubelet never hangs up."""
    reports = watch_health(plugin)
    await anext(reports)
    health.end()
    assert [report async for report in reports] in ([], [{"gpu-0": (1, ""), "gpu-1": (1, "")}])


def test_a_vanished_device_is_unhealthy_and_not_forgotten():
    """A pod may still hold it, and its status must not read Healthy or Unknown."""
    report = HealthReport()
    report.of(Inventory(state=DriverState.READY, gpus=(gpu(0), gpu(1))))
    after = report.of(Inventory(state=DriverState.READY, gpus=(gpu(0),)))
    assert after["gpu-0"] is None
    assert "no longer on this node" in after["gpu-1"]


async def test_a_probe_is_no_request(plugin, metrics):
    """Probes ask for nothing, several times a minute."""
    await prepare(plugin)
    await unprepare(plugin)
    assert set(counted(metrics).values()) == {0.0}
    await prepare(plugin, ref("a"))
    assert {operation for (_, operation), count in counted(metrics).items() if count} == {"prepare"}


async def test_the_sockets_are_for_root_alone(plugin, directory):
    assert stat.S_IMODE((directory / "dra.sock").stat().st_mode) == 0o600


async def test_a_socket_is_made_without_touching_the_umask(directory, kubelet, registration, monkeypatch):
    """It is the whole process's: directories that other threads make meanwhile could not be entered."""
    touched = []
    monkeypatch.setattr(os, "umask", lambda mask: touched.append(mask) or 0o022)
    async with serving(directory / "registry" / "gpu-reg.sock", registration.handlers(), grace=0):
        pass
    assert not touched
