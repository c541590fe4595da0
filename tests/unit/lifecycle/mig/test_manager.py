"""A label cuts the GPUs that nobody holds, names who holds the others, and may be killed at any line."""

import asyncio
import contextlib
import threading

import pytest

from gpu_dra.core.clock import FakeClock
from gpu_dra.core.tasks import supervise
from gpu_dra.hardware.fake import FakeNvml, Fault
from gpu_dra.hardware.host import HostPaths
from gpu_dra.hardware.nvml_errors import NvmlError
from gpu_dra.hardware.reservations import Reservations
from gpu_dra.hardware.simulated import simulated_machine
from gpu_dra.hardware.worker import NvmlWorker
from gpu_dra.kube.api import EVENTS, NODES, RESOURCE_CLAIMS, RESOURCE_SLICES
from gpu_dra.kube.events import EventRecorder
from gpu_dra.kube.fake import FakeKubeApi
from gpu_dra.lifecycle.mig.label import CONFIG, STATE, MigLabels
from gpu_dra.lifecycle.mig.manager import MigManager
from gpu_dra.lifecycle.mig.wish import parse

IN_USE = 19
NOT_PERMITTED = 4


class Host:
    """A node with GPUs, a plugin that withdraws what is reserved, and an agent."""

    def __init__(self, root, machine="h100x8"):
        self.clock = FakeClock()
        self.api = FakeKubeApi(clock=self.clock)
        self.api.store.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-a", "labels": {"team": "a"}}})
        self.nvml = FakeNvml(simulated_machine(machine))
        self.worker = NvmlWorker(self.nvml)
        self.reservations = Reservations(root, boot_id="boot")
        self.plugin_runs = True
        self.events = EventRecorder(self.api, clock=self.clock, component="gpu-dra-agent", instance="node-a")
        self.text = "{version: v1, mig-configs: {}}"
        self.agent = self.new_agent()
        self.at_withdrawal = lambda: None
        self.reserved = ()
        self.put_slice([gpu.minor for gpu in self.nvml.gpus])

    def new_agent(self):
        manager = MigManager(
            self.api,
            self.worker,
            self.reservations,
            node_name="node-a",
            host=HostPaths(),
            configs=lambda: parse(self.text, where="config.yaml"),
            clock=self.clock,
        )
        self.manager = manager
        return MigLabels(self.api, manager, self.events, node_name="node-a", clock=self.clock)

    async def publish(self):
        """What the plugin does: every GPU that is not reserved, whole or by partitions, in one slice."""
        self.reserved = await asyncio.to_thread(self.reservations.read, now=self.clock.monotonic())
        taken = {each.uuid for each in self.reserved}
        self.put_slice([gpu.minor for gpu in self.nvml.gpus if gpu.uuid not in taken])
        if taken:
            self.at_withdrawal()

    def put_slice(self, minors):
        devices = [{"name": f"gpu-{minor}"} for minor in minors]
        body = {"metadata": {"name": "s"}, "spec": {"driver": "gpu.nvidia.com", "nodeName": "node-a", "devices": devices}}
        with contextlib.suppress(Exception):
            self.api.store.delete(RESOURCE_SLICES, "s")
        self.api.store.create(RESOURCE_SLICES, {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", **body})

    async def plugin(self):
        while True:
            if self.plugin_runs:
                await self.publish()
            await self.clock.sleep(1)

    def ask(self, name):
        node = self.api.store.get(NODES, "node-a")
        node["metadata"]["labels"][CONFIG] = name
        self.api.store.update(NODES, node)

    def hold(self, device, name="train", pod="train-0"):
        result = {"driver": "gpu.nvidia.com", "pool": "node-a", "device": device, "request": "gpu"}
        body = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"namespace": "ml", "name": name},
            "spec": {},
            "status": {
                "allocation": {"devices": {"results": [result]}},
                "reservedFor": [{"resource": "pods", "name": pod, "uid": "u"}],
            },
        }
        self.api.store.create(RESOURCE_CLAIMS, body, namespace="ml")
        self.api.store.update_status(
            RESOURCE_CLAIMS, {**self.api.store.get(RESOURCE_CLAIMS, name, namespace="ml"), "status": body["status"]}, namespace="ml"
        )

    async def until(self, condition, seconds=120):
        for _ in range(seconds * 2):
            if condition():
                return
            await self.clock.advance(0.5)
            await asyncio.sleep(0.002)  # the NVML thread and files are real
        raise AssertionError(f"not within {seconds} s: state {self.state}, events {self.told}")

    @property
    def state(self):
        return self.api.store.get(NODES, "node-a")["metadata"]["labels"].get(STATE)

    @property
    def told(self):
        return [event["message"] for event in self.api.store.list(EVENTS)]

    def cut(self, minor):
        return sorted(
            instance.board_profile.profile.name
            for instance in self.nvml.gpus[minor].instances.values()
            if len(instance.compute) == 1
        )


@pytest.fixture
def make_host(tmp_path):
    hosts = []

    def make(machine="h100x8"):
        hosts.append(Host(tmp_path, machine))
        return hosts[-1]

    yield make
    for host in hosts:
        host.worker.close()


@contextlib.asynccontextmanager
async def running(host):
    work = {"plugin": host.plugin, "watch": host.agent.watch, "look": host.agent.run, "events": host.events.run}
    tasks = [asyncio.create_task(supervise(name, each, clock=host.clock)) for name, each in work.items()]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_label_cuts_every_gpu_and_gives_them_back(make_host):
    host = make_host()
    async with running(host):
        host.ask("all-balanced")
        await host.until(lambda: host.state == "success")
        assert [host.cut(minor) for minor in range(8)] == [["1g.10gb", "1g.10gb", "2g.20gb", "3g.40gb"]] * 8
        await host.until(lambda: host.reserved == ())
        host.ask("all-disabled")
        await host.until(lambda: not any(gpu.mode.current for gpu in host.nvml.gpus))
        await host.until(lambda: host.state == "success")


async def test_a_node_without_the_label_is_left_as_it_is(make_host):
    host = make_host()
    async with running(host):
        host.ask("all-1g.10gb")
        await host.until(lambda: host.state == "success")
        host.ask("")
        await host.until(lambda: host.state is None)
        await host.clock.advance(100)
        assert host.cut(0) == ["1g.10gb"] * 7


async def test_while_a_gpu_is_cut_it_is_offered_to_nobody(make_host):
    host = make_host()
    seen = []
    order = host.nvml.create_gpu_instance

    def create(gpu, profile_id, placement):
        names = [device["name"] for device in host.api.store.get(RESOURCE_SLICES, "s")["spec"]["devices"]]
        seen.append(f"gpu-{gpu.gpu_index}" in names)
        return order(gpu, profile_id, placement)

    host.nvml.create_gpu_instance = create
    async with running(host):
        host.ask("all-1g.10gb")
        await host.until(lambda: host.state == "success")
    assert len(seen) == 56
    assert not any(seen)


async def test_a_gpu_that_somebody_holds_is_left_alone_and_the_holder_is_named(make_host):
    host = make_host()
    host.hold("gpu-3")
    async with running(host):
        host.ask("all-1g.10gb")
        await host.until(lambda: host.cut(7) == ["1g.10gb"] * 7 and host.state == "pending" and host.told)
        assert not host.nvml.gpus[3].mode.current
        assert "gpu-3 (0000:61:00.0) waits for claim ml/train of pod train-0" in host.told[-1]
        host.api.store.delete(RESOURCE_CLAIMS, "train", namespace="ml")
        await host.until(lambda: host.state == "success")
        assert host.cut(3) == ["1g.10gb"] * 7


async def test_a_claim_that_comes_while_the_gpu_is_withdrawn_keeps_it(make_host):
    """Allocated from a slice that was about to go: the last look comes after the withdrawal."""
    host = make_host()

    def once():
        host.at_withdrawal = lambda: None
        host.hold("gpu-5")

    host.at_withdrawal = once
    async with running(host):
        host.ask("all-1g.10gb")
        await host.until(lambda: host.cut(7) and host.state == "pending" and host.told)
        assert not host.nvml.gpus[5].mode.current
        assert "claim ml/train" in host.told[-1]


async def test_a_claim_of_another_node_or_driver_holds_nothing(make_host):
    from gpu_dra.lifecycle.mig.holders import holders

    result = {"driver": "gpu.nvidia.com", "pool": "node-b", "device": "gpu-1"}
    others = [
        result,
        {**result, "pool": "node-a", "driver": "nic.example.com"},
        {**result, "pool": "node-a", "device": "channel-1"},
    ]
    claims = [
        {"metadata": {"namespace": "a", "name": "b"}, "status": {"allocation": {"devices": {"results": [each]}}}} for each in others
    ]
    assert holders([*claims, {"metadata": {}, "status": {}}], node_name="node-a") == {}
    mig = [
        {
            **claims[0],
            "status": {"allocation": {"devices": {"results": [{**result, "pool": "node-a", "device": "gpu-12-mig-1g10gb-19-0"}]}}},
        }
    ]
    assert holders(mig, node_name="node-a") == {12: ["claim a/b, allocated to no pod now"]}


async def test_without_a_plugin_that_withdraws_it_nothing_is_touched(make_host):
    host = make_host()
    host.plugin_runs = False
    async with running(host):
        host.ask("all-1g.10gb")
        await host.until(lambda: host.told)
        assert "still offered 30 s after" in host.told[-1]
        assert host.state == "pending"
        assert not any(gpu.mode.current for gpu in host.nvml.gpus)
        host.plugin_runs = True
        await host.until(lambda: host.state == "success")


async def test_one_gpu_that_refuses_does_not_keep_the_others_from_being_cut(make_host):
    host = make_host()
    host.nvml.order(Fault(method="create_gpu_instance", code=NOT_PERMITTED, gpu=2))
    async with running(host):
        host.ask("all-1g.10gb")
        await host.until(lambda: host.state == "failed")
        assert [bool(host.cut(minor)) for minor in range(8)] == [True, True, False, True, True, True, True, True]
        await host.until(lambda: host.told)
        assert "no permission" in host.told[-1]
        await host.until(lambda: host.reserved == ())
        host.nvml.clear()
        await host.until(lambda: host.state == "success")
        assert host.cut(2) == ["1g.10gb"] * 7


async def test_a_partition_that_a_process_uses_is_not_destroyed_and_is_told(make_host):
    host = make_host()
    async with running(host):
        host.ask("all-7g.80gb")
        await host.until(lambda: host.state == "success")
        host.nvml.order(Fault(method="destroy_compute_instance", code=IN_USE, gpu=0))
        host.ask("all-1g.10gb")
        await host.until(lambda: host.state == "pending" and any("in use" in each for each in host.told))
        assert host.cut(0) == ["7g.80gb"]
        assert host.cut(1) == ["1g.10gb"] * 7


async def test_on_ampere_the_mode_waits_for_a_reset_and_the_node_says_how_without_touching_the_gpu_again(make_host):
    host = make_host("a100x8")
    async with running(host):
        host.ask("all-1g.5gb")
        await host.until(lambda: host.told)
        assert "nvidia-smi --gpu-reset -i 0000:07:00.0" in host.told[-1]
        await host.until(lambda: all(gpu.mode.pending for gpu in host.nvml.gpus))
        await host.until(lambda: host.reserved == ())
        for _ in range(60):
            await host.clock.advance(1)
            await asyncio.sleep(0.001)
            assert host.reserved == ()
        for gpu in host.nvml.gpus:
            gpu.reset()
        await host.until(lambda: host.state == "success")
        assert host.cut(4) == ["1g.5gb"] * 7


async def test_what_a_reboot_forgets_is_cut_again(make_host):
    host = make_host()
    async with running(host):
        host.ask("all-2g.20gb")
        await host.until(lambda: host.state == "success")
        for gpu in host.nvml.gpus:
            gpu.instances.clear()
        await host.until(lambda: host.cut(6) == ["2g.20gb"] * 3)


async def test_an_unknown_configuration_fails_with_the_names_there_are(make_host):
    host = make_host()
    async with running(host):
        host.ask("all-1g.5gb")
        await host.until(lambda: host.state == "failed" and host.told)
        assert "there are: all-1g.10gb" in host.told[-1]


async def test_a_success_that_is_none_is_found_by_reading_back(make_host):
    host = make_host()
    host.nvml.create_compute_instance = lambda _instance, _profile_id: None
    async with running(host):
        host.ask("all-7g.80gb")
        await host.until(lambda: host.state == "failed" and host.told)
        assert "is not cut as all-7g.80gb says" in host.told[-1]


@pytest.mark.parametrize("calls", range(0, 40, 7))
async def test_an_agent_that_is_killed_at_any_line_is_followed_by_one_that_ends_the_work(make_host, calls):
    """Killed: no `finally` runs, so that reservations stay behind."""
    host = make_host()

    class Killed(BaseException):
        pass

    left = [calls]

    def dying(name):
        real = getattr(host.nvml, name)

        def call(*arguments, **keywords):
            left[0] -= 1
            if left[0] < 0:
                raise Killed
            return real(*arguments, **keywords)

        return call

    names = ("set_mig_mode", "create_gpu_instance", "create_compute_instance")
    for name in names:
        setattr(host.nvml, name, dying(name))
    remove, host.reservations.remove = host.reservations.remove, lambda _uuid: None
    host.ask("all-2g.20gb")
    plugin = asyncio.create_task(host.plugin())
    look = asyncio.create_task(host.agent.look())
    with contextlib.suppress(Killed):
        await host.until(look.done)
        await look
    plugin.cancel()
    for name in names:
        delattr(host.nvml, name)
    host.reservations.remove = remove
    host.agent = host.new_agent()
    async with running(host):
        await host.until(lambda: host.state == "success" and host.reserved == (), seconds=400)
    assert [host.cut(minor) for minor in range(8)] == [["2g.20gb"] * 3] * 8


async def test_a_mode_that_somebody_keeps_from_being_switched_is_tried_less_and_less_and_costs_the_node_little(make_host):
    """An exporter that has NVML open must not keep eight GPUs out of service for ever."""
    host = make_host()
    host.nvml.order(Fault(method="set_mig_mode", code=IN_USE, times=None))
    reserved = 0
    async with running(host):
        host.ask("all-1g.10gb")
        await host.until(lambda: host.told)
        for second in range(3000):
            await host.clock.advance(1)
            await asyncio.sleep(0.0005)
            reserved += bool(host.reserved) and second >= 1200
        assert host.state == "pending"
        assert host.told[0].count("gpu-0 (0000:1b:00.0)") == 1
    assert reserved < 300, "more than a sixth of the second half hour out of service"


async def test_another_wish_is_tried_at_once_however_often_the_last_one_failed(make_host):
    host = make_host()
    host.nvml.order(Fault(method="create_gpu_instance", code=NOT_PERMITTED))
    async with running(host):
        host.ask("all-1g.10gb")
        await host.until(lambda: host.state == "failed", seconds=60)
        await host.clock.advance(1800)
        host.nvml.clear()
        host.ask("all-2g.20gb")
        await host.until(lambda: host.state == "success", seconds=60)


async def test_gpus_that_wait_for_a_reset_and_gpus_that_are_held_are_told_together_and_are_no_failure(make_host):
    host = make_host("a100x8")
    host.hold("gpu-3")
    async with running(host):
        host.ask("all-1g.5gb")
        await host.until(lambda: any("claim ml/train" in each and "--gpu-reset" in each for each in host.told))
        assert host.state == "pending"
        assert not any("MigConfigFailed" in event["reason"] for event in host.api.store.list(EVENTS))


async def test_while_nvml_hangs_no_session_is_opened_over_it(make_host):
    """To open a session closes the one before, under the call that has not returned."""
    host = make_host()
    host.worker = NvmlWorker(host.nvml, deadline=0.05)
    host.agent = host.new_agent()
    release, opened = threading.Event(), []
    order, open_ = host.nvml.set_mig_mode, host.nvml.open
    host.nvml.set_mig_mode = lambda *arguments, **keywords: release.wait(10) and order(*arguments, **keywords)
    host.nvml.open = lambda: (opened.append(True), open_())
    async with running(host):
        host.ask("all-1g.10gb")
        await host.until(lambda: any("did not return" in each for each in host.told))
        assert host.reserved, "what is being switched is offered again"
        before = len(opened)
        for _ in range(100):
            await host.clock.advance(1)
            await asyncio.sleep(0.001)
        assert len(opened) == before
        host.nvml.set_mig_mode = order
        release.set()
        await host.until(lambda: host.state == "success", seconds=1300)


async def test_an_agent_that_is_stopped_in_the_midst_leaves_the_gpu_out_of_service(make_host):
    """The NVML call that has begun goes on without it."""
    host = make_host()
    host.nvml.create_gpu_instance = lambda *_: asyncio.run(asyncio.sleep(0.3))
    async with running(host):
        host.ask("all-1g.10gb")
        await host.until(lambda: host.reserved and host.nvml.gpus[0].mode.current)
    assert await asyncio.to_thread(host.reservations.read, now=host.clock.monotonic())


async def test_while_gpus_are_cut_the_answer_says_so(make_host):
    host = make_host()
    host.plugin_runs = False
    async with running(host):
        host.ask("all-1g.10gb")
        await host.until(lambda: host.state == "pending")
        assert host.agent.answer.reason == "MigConfigApplying"
        assert host.agent.answer.config == "all-1g.10gb"


async def test_a_sick_gpu_hides_no_other_from_whoever_only_looks(make_host):
    host = make_host()
    host.nvml.order(Fault(method="uuid", code=NOT_PERMITTED, gpu=2))
    assert [board.minor for board in await host.manager.boards_that_answer()] == [0, 1, 3, 4, 5, 6, 7]
    with pytest.raises(NvmlError):
        await host.manager.boards()
