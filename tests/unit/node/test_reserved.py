"""What the agent works on is not offered, and NVML is lent to it."""

import asyncio

from gpu_dra.core.clock import FakeClock
from gpu_dra.hardware.discovery import Discovery
from gpu_dra.hardware.fake import FakeNvml
from gpu_dra.hardware.host import HostPaths
from gpu_dra.hardware.reservations import Reservation
from gpu_dra.hardware.simulated import simulated_machine
from gpu_dra.model.inventory import DriverState
from gpu_dra.node.reserved import ReservedGpus


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
    task = asyncio.create_task(reserved.run())
    await settled(clock, 2)
    assert reserved.without(inventory) is inventory
    files.found = (Reservation(uuid=inventory.gpus[2].uuid, reason="", until=clock.wall() + 20, exclusive=False),)
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
