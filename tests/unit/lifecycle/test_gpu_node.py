"""One object tells what a GPU node has, what it lacks and what it waits for."""

import asyncio
import contextlib
from pathlib import Path

import pytest

from gpu_dra.core.clock import FakeClock
from gpu_dra.core.errors import NotReady
from gpu_dra.hardware.host import HostPaths
from gpu_dra.kube.api import EVENTS, NODES
from gpu_dra.kube.errors import Invalid
from gpu_dra.kube.events import EventRecorder
from gpu_dra.kube.fake import FakeKubeApi
from gpu_dra.lifecycle.gpu_node import GPU_NODES
from gpu_dra.lifecycle.mig.label import Answer, State
from gpu_dra.lifecycle.node_look import NodeLook
from tests.unit.lifecycle.mig.boards import H100, board

NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {
        "name": "node-a",
        "labels": {"nvidia.com/mig.config": "all-balanced", "nvidia.com/mig.config.state": "pending"},
    },
    "status": {"conditions": [{"type": "NvidiaGPUsOffered", "status": "True", "reason": "Offered", "message": "published"}]},
}


class Agent:
    """The parts of an agent that a look needs, over a host of files."""

    def __init__(self, root):
        self.clock = FakeClock()
        self.api = FakeKubeApi(clock=self.clock)
        self.api.store.create(NODES, NODE)
        self.root = root
        self.driver = "nouveau"
        self.answer = None
        self.boards_trouble = None
        device = root / "sys/bus/pci/devices/0000:1b:00.0"
        device.mkdir(parents=True)
        (device / "vendor").write_text("0x10de\n")
        (device / "class").write_text("0x030200\n")
        self.bind("nouveau")
        self.events = EventRecorder(self.api, clock=self.clock, component="gpu-dra-agent", instance="node-a")
        host = HostPaths(proc=root / "proc", sys=root / "sys", driver_root=root, host_driver_root=Path("/"))
        self.look = NodeLook(
            self.api, self.events, manager=self, labels=self, node_name="node-a", host=host, root=root, clock=self.clock
        )

    def bind(self, driver):
        link = self.root / "sys/bus/pci/devices/0000:1b:00.0/driver"
        link.unlink(missing_ok=True)
        link.symlink_to(f"../../drivers/{driver}")

    async def boards_that_answer(self):
        if self.boards_trouble:
            raise self.boards_trouble
        return (board(H100, 0),)

    @property
    def status(self):
        return self.api.store.get(GPU_NODES, "node-a")["status"]

    def condition(self, kind):
        return next(each for each in self.status["conditions"] if each["type"] == kind)

    async def told(self):
        task = asyncio.create_task(self.events.run())
        await self.clock.advance(5)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        return [event["reason"] for event in self.api.store.list(EVENTS)]


@pytest.fixture
def agent(tmp_path):
    return Agent(tmp_path)


async def test_a_look_makes_the_object_which_goes_with_its_node(agent):
    await agent.look.look()
    made = agent.api.store.get(GPU_NODES, "node-a")
    uid = agent.api.store.get(NODES, "node-a")["metadata"]["uid"]
    assert made["metadata"]["ownerReferences"] == [{"apiVersion": "v1", "kind": "Node", "name": "node-a", "uid": uid}]
    assert agent.status["phase"] == "NotReady"
    assert "nouveau has 0000:1b:00.0" in agent.status["waitsFor"]
    assert agent.status["gpuCount"] == 1
    assert agent.status["product"] == "NVIDIA H100 80GB HBM3"
    assert agent.status["mig"] == {"config": "all-balanced", "state": "pending"}
    assert agent.condition("Offered")["status"] == "True"


async def test_nothing_is_written_when_nothing_changed_and_a_condition_keeps_its_time(agent):
    await agent.look.look()
    writes, since = len(agent.api.writes), agent.condition("KernelModule")["lastTransitionTime"]
    await agent.clock.advance(600)
    await agent.look.look()
    assert len(agent.api.writes) == writes
    agent.bind("vfio-pci")
    await agent.look.look()
    assert agent.condition("KernelModule")["reason"] == "OtherDriver"
    assert agent.condition("KernelModule")["lastTransitionTime"] == since
    agent.bind("nvidia")
    await agent.look.look()
    assert agent.condition("KernelModule")["reason"] == "NotInstalled"


async def test_what_goes_wrong_and_well_again_is_an_event_once(agent):
    await agent.look.look()
    await agent.look.look()
    first = await agent.told()
    assert first.count("KernelModuleNouveau") == 1
    assert "OfferedOffered" not in first


async def test_what_the_geometry_waits_for_is_a_condition(agent):
    agent.answer = Answer(config="all-balanced", state=State.PENDING, reason="MigConfigWaits", message="waiting for claim ml/train")
    await agent.look.look()
    assert agent.condition("MigGeometry")["status"] == "False"
    assert agent.condition("MigGeometry")["message"] == "waiting for claim ml/train"


async def test_a_driver_that_does_not_answer_hides_no_gpu(agent):
    agent.boards_trouble = NotReady("NVML is away")
    await agent.look.look()
    assert agent.status["gpus"] == [{"pci": "0000:1b:00.0", "driver": "nouveau"}]


async def test_an_answer_to_another_wish_is_not_told_as_one_to_this(agent):
    """Between a new label and the first look at it the old answer says nothing."""
    agent.answer = Answer(config="all-1g.10gb", state=State.SUCCESS, reason="MigConfigApplied", message="cut")
    await agent.look.look()
    assert "MigGeometry" not in [each["type"] for each in agent.status["conditions"]]


async def test_a_state_that_another_manager_wrote_is_not_copied(agent):
    """NVIDIA's MIG manager knows states that the GpuNode's schema would refuse."""
    node = agent.api.store.get(NODES, "node-a")
    node["metadata"]["labels"]["nvidia.com/mig.config.state"] = "rebooting"
    agent.api.store.update(NODES, node)
    await agent.look.look()
    assert agent.status["mig"] == {"config": "all-balanced"}


async def test_a_status_that_cannot_be_written_is_told_by_events_all_the_same(agent):
    agent.api.fail(Invalid("no"), resource=GPU_NODES, times=None)
    with pytest.raises(Invalid):
        await agent.look.look()
    assert "KernelModuleNouveau" in await agent.told()
