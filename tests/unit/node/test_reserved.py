"""What the agent works on is not offered, and NVML is lent to it."""

import asyncio
import threading

import pytest

from gpu_dra.claims.plan import locate
from gpu_dra.core.clock import FakeClock
from gpu_dra.core.errors import NotReady
from gpu_dra.hardware.discovery import Discovery
from gpu_dra.hardware.fake import FakeNvml
from gpu_dra.hardware.host import HostPaths
from gpu_dra.hardware.reservations import Reservation
from gpu_dra.hardware.simulated import simulated_machine
from gpu_dra.model.inventory import DriverState
from gpu_dra.node.reserved import ReservedGpus, UnreservedInventories


class Files:
    """Stands for the directory."""

    def __init__(self):
        self.found = ()

    def stamp(self):
        return len(self.found)

    def read(self, *, now):
        return tuple(each for each in self.found if each.until > now)


async def settled(clock, seconds):
    for _ in range(seconds):
        await clock.advance(1)
        await asyncio.sleep(0.01)


async def test_a_reserved_gpu_is_withdrawn_within_a_second_and_back_when_its_time_is_over():
    clock, files = FakeClock(), Files()
    discovery = Discovery(FakeNvml(simulated_machine("h100x8")), HostPaths(), clock=clock)
    inventory = await discovery.refresh()
    reserved = ReservedGpus(files, clock=clock)
    task = asyncio.create_task(reserved.run(discovery.refresh))
    await settled(clock, 2)
    assert reserved.without(inventory) is inventory
    files.found = (Reservation(uuid=inventory.gpus[2].uuid, reason="", until=clock.monotonic() + 20, exclusive=False),)
    await settled(clock, 2)
    assert reserved.changed.is_set()
    assert [gpu.minor for gpu in reserved.without(inventory).gpus] == [0, 1, 3, 4, 5, 6, 7]
    assert not reserved.is_exclusive()
    await settled(clock, 25)
    assert reserved.without(inventory) is inventory
    task.cancel()
    await discovery.close()


async def test_while_nvml_is_lent_its_session_is_closed_and_the_last_snapshot_stands():
    clock, nvml, lent = FakeClock(), FakeNvml(simulated_machine("h100x8")), [True]
    discovery = Discovery(nvml, HostPaths(), clock=clock, lent=lambda: lent[0])
    task = asyncio.create_task(discovery.run())
    await settled(clock, 3)
    assert discovery.current.state is DriverState.READY, "a plugin that starts looks first"
    assert not nvml._session
    before = discovery.current
    assert await discovery.refresh() is before
    assert not nvml._session
    await settled(clock, 130)
    assert discovery.age < 5, "a plugin that lends NVML is alive"
    nvml.gpus[0].lost = True
    lent[0] = False
    await settled(clock, 3)
    assert nvml._session
    assert [fault.where for fault in discovery.current.faults] == ["index 0"]
    task.cancel()
    await discovery.close()


async def test_a_gpu_that_was_worked_on_comes_back_as_it_is_then_and_not_as_it_was():
    """Whoever got a device of the last snapshot would wait for something that is there no more."""
    clock, files, nvml = FakeClock(), Files(), FakeNvml(simulated_machine("h100x8"))
    reserved = ReservedGpus(files, clock=clock)
    discovery = Discovery(nvml, HostPaths(), clock=clock, lent=reserved.is_exclusive)
    tasks = [asyncio.create_task(discovery.run()), asyncio.create_task(reserved.run(discovery.refresh))]
    await settled(clock, 2)
    files.found = (Reservation(uuid=nvml.gpus[2].uuid, reason="is cut", until=clock.monotonic() + 20, exclusive=True),)
    await settled(clock, 3)
    cut = FakeNvml(simulated_machine("h100x8"))
    cut.gpus = nvml.gpus
    cut.open()
    cut.set_mig_mode(cut.gpu(2), enabled=True)
    cut.close()
    seen = []
    files.found = ()
    for _ in range(40):
        await clock.advance(0.1)
        await asyncio.sleep(0.002)
        seen += [gpu.in_mig_mode for gpu in reserved.without(discovery.current).gpus if gpu.minor == 2]
    assert seen
    assert all(seen)
    for task in tasks:
        task.cancel()
    await discovery.close()


async def test_nothing_is_prepared_on_a_gpu_that_is_worked_on_and_it_is_told_why():
    clock, files = FakeClock(), Files()
    discovery = Discovery(FakeNvml(simulated_machine("h100x8")), HostPaths(), clock=clock)
    inventory = await discovery.refresh()
    files.found = (
        Reservation(uuid=inventory.gpus[3].uuid, reason="its MIG geometry is being changed", until=9e9, exclusive=False),
    )
    inventories = UnreservedInventories(discovery, ReservedGpus(files, clock=clock))
    for found in (inventories.current, await inventories.refresh()):
        with pytest.raises(NotReady, match=r"gpu-3 is not on this node.*unusable: gpu-3.*its MIG geometry is being changed"):
            locate("gpu-3", found)
        assert locate("gpu-4", found)
    await discovery.close()


async def test_nvml_is_not_closed_under_a_call_that_hangs():
    clock, nvml, lent = FakeClock(), FakeNvml(simulated_machine("h100x8")), [False]
    discovery = Discovery(nvml, HostPaths(), clock=clock, lent=lambda: lent[0], deadline=0.05)
    await discovery.refresh()
    release = threading.Event()
    nvml.driver_version = lambda: release.wait(5) and ""
    nvml.gpu_count = nvml.driver_version
    await discovery.refresh()
    closed = []
    nvml.close = lambda: closed.append(True)
    lent[0] = True
    task = asyncio.create_task(discovery.run())
    await settled(clock, 3)
    assert not closed
    release.set()
    await asyncio.sleep(0.05)
    await settled(clock, 3)
    assert closed
    task.cancel()
    await discovery.close()
