"""The inventory follows the machine: at start, when something changes, and when the driver comes, goes, or comes back."""

from __future__ import annotations

import asyncio
import contextlib
import threading

import pytest

from gpu_dra.hardware.discovery import POLL, RESCAN, Discovery
from gpu_dra.hardware.fake import Fault
from gpu_dra.model.inventory import DriverState

UNINITIALIZED, DRIVER_NOT_LOADED, LIBRARY_NOT_FOUND, VERSION_MISMATCH, UNKNOWN = 1, 9, 12, 18, 999


@pytest.fixture
async def discovery(nvml, host, clock):
    discovery = Discovery(nvml, host, clock=clock, deadline=0.05)
    yield discovery
    nvml.clear()
    await discovery.close()


@pytest.fixture
async def running(discovery):
    task = asyncio.create_task(discovery.run())
    yield discovery
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def reach(clock, condition, *, seconds=POLL, within=5.0):
    """Move time on in steps until the condition holds; NVML's thread needs real moments in between."""
    async with asyncio.timeout(within):
        while not condition():
            await clock.advance(seconds)
            await asyncio.sleep(0.005)


async def test_before_the_first_scan_the_inventory_says_so(discovery):
    assert discovery.current.state is DriverState.UNRESPONSIVE
    assert "has not ended yet" in discovery.current.reason


async def test_a_refresh_scans_now(discovery):
    inventory = await discovery.refresh()
    assert inventory.state is DriverState.READY
    assert len(inventory.gpus) == 8


async def test_a_reader_of_changes_gets_the_snapshot_and_then_what_is_new(nvml, discovery):
    changes = discovery.changes()
    await discovery.refresh()
    assert (await anext(changes)).gpus[0].unhealthy is None
    nvml.gpus[0].recovery_action = 1
    await discovery.refresh()
    assert (await anext(changes)).gpus[0].unhealthy is not None
    await changes.aclose()


async def test_an_equal_scan_is_no_change(discovery):
    changes = discovery.changes()
    await discovery.refresh()
    await anext(changes)
    await discovery.refresh()
    waiting = asyncio.ensure_future(anext(changes))
    await asyncio.sleep(0.02)
    assert not waiting.done()
    waiting.cancel()


async def test_refreshes_asked_for_together_share_a_scan(nvml, discovery):
    """Many claims may name a device that nobody knows yet; the first scan may have begun too early for the others."""
    scans = nvml.order(Fault("driver_version", hang=_Noting([])))
    await asyncio.gather(*(discovery.refresh() for _ in range(20)))
    assert len(scans.hang.passed) == 2


async def test_a_refresh_whose_scan_was_cancelled_is_still_answered_by_a_whole_one(nvml, discovery):
    hanging = nvml.order(Fault("gpu_count", hang=threading.Event(), times=1))
    first = asyncio.create_task(discovery.refresh())
    await asyncio.sleep(0.01)
    second = asyncio.create_task(discovery.refresh())
    await asyncio.sleep(0)
    first.cancel()
    hanging.hang.set()
    assert (await second).state is DriverState.READY


async def test_a_kernel_module_loaded_anew_gets_a_new_session(nvml, clock, running, host):
    """The old session talks to a module that is gone."""
    await reach(clock, lambda: running.current.gpus, seconds=0)
    opened = nvml.order(Fault("open", hang=_Noting([]))).hang.passed
    version = host.proc / "driver/nvidia/version"
    version.parent.mkdir(parents=True)
    version.write_text("NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.142  Tue Dec  2 12:00:00 UTC 2025\n")
    await reach(clock, lambda: opened)
    assert running.current.state is DriverState.READY


async def test_a_partition_made_by_hand_is_seen_at_the_next_poll(nvml, clock, running):
    await reach(clock, lambda: running.current.gpus, seconds=0)
    gpu = nvml.gpus[3]
    gpu.set_mode(enabled=True)
    gpu.create_compute(gpu.create(9, None), 3)
    started = clock.monotonic()
    await reach(clock, lambda: running.current.gpus[3].mig_devices)
    assert clock.monotonic() - started < RESCAN / 2


async def test_a_lost_gpu_is_seen_at_the_next_poll_and_healed_at_another(nvml, clock, running):
    await reach(clock, lambda: running.current.gpus, seconds=0)
    nvml.gpus[3].lost = True
    await reach(clock, lambda: running.current.gpus[3].unhealthy)
    nvml.gpus[3].lost = False
    await reach(clock, lambda: not running.current.gpus[3].unhealthy)


@pytest.mark.parametrize(
    ("code", "state"),
    [
        (DRIVER_NOT_LOADED, DriverState.DRIVER_NOT_LOADED),
        (LIBRARY_NOT_FOUND, DriverState.LIBRARY_NOT_FOUND),
        (VERSION_MISMATCH, DriverState.VERSION_MISMATCH),
        (UNKNOWN, DriverState.UNRESPONSIVE),
    ],
)
async def test_a_driver_that_cannot_be_asked_is_a_state_with_a_reason_and_heals(nvml, clock, running, pci_device, code, state):
    pci_device("0000:1b:00.0")
    nvml.order(Fault("open", code=code))
    await reach(clock, lambda: str(code) in running.current.reason)
    assert running.current.state is state
    nvml.clear()
    await reach(clock, lambda: running.current.state is DriverState.READY)
    assert running.current.reason == ""


@pytest.mark.parametrize("code", [DRIVER_NOT_LOADED, LIBRARY_NOT_FOUND])
async def test_a_node_without_a_gpu_needs_no_driver(nvml, discovery, code):
    nvml.order(Fault("open", code=code))
    assert (await discovery.refresh()).state is DriverState.NO_GPU


async def test_gpus_that_are_not_bound_yet_are_waited_for(nvml, clock, running, pci_device):
    """The plugin may start before the kernel module has taken the GPUs."""
    gpus, nvml.gpus = nvml.gpus, []
    pci_device("0000:1b:00.0", bound=False)
    await reach(clock, lambda: running.current.state is DriverState.DRIVER_NOT_LOADED)
    assert "none is bound" in running.current.reason
    nvml.gpus = gpus
    await reach(clock, lambda: running.current.state is DriverState.READY)


async def test_a_gpu_that_hangs_is_set_aside_until_its_call_returns(nvml, clock, running):
    await reach(clock, lambda: running.current.gpus, seconds=0)
    fault = nvml.order(Fault("recovery_action", gpu=3, hang=threading.Event()))
    await reach(clock, lambda: running.current.gpus[3].unhealthy)
    assert "did not return" in running.current.gpus[3].unhealthy
    assert [gpu.minor for gpu in running.current.gpus if gpu.unhealthy] == [3]
    fault.hang.set()
    nvml.clear()
    await reach(clock, lambda: not running.current.gpus[3].unhealthy)


async def test_a_node_whose_nvml_hangs_keeps_its_gpus_unhealthy(nvml, clock, running):
    """Their claims are still there, and it may come back."""
    await reach(clock, lambda: running.current.gpus, seconds=0)
    fault = nvml.order(Fault("gpu_count", hang=threading.Event()))
    await reach(clock, lambda: running.current.state is DriverState.UNRESPONSIVE, seconds=RESCAN)
    assert len(running.current.gpus) == 8
    assert all(gpu.unhealthy for gpu in running.current.gpus)
    nvml.clear()
    fault.hang.set()
    await reach(clock, lambda: running.current.state is DriverState.READY)


async def test_gpus_bound_later_are_found_by_a_new_session(nvml, clock, running, pci_device):
    """NVML lists the GPUs that were there when its session began."""
    await reach(clock, lambda: running.current.gpus, seconds=0)
    opened = nvml.order(Fault("open", hang=_Noting([]))).hang.passed
    pci_device("0000:1b:00.0")
    await reach(clock, lambda: opened)
    assert running.current.state is DriverState.READY


class _Noting(threading.Event):
    """An event that never waits and notes that somebody came by."""

    def __init__(self, passed):
        super().__init__()
        self.passed = passed

    def wait(self, timeout=None):
        self.passed.append(timeout)
        return True


async def test_one_gpu_whose_files_in_proc_cannot_be_read_hides_no_other(nvml, host, discovery):
    nvml.order(Fault("minor", code=3, gpu=2))
    pci = nvml.gpus[2].pci
    information = host.proc / f"driver/nvidia/gpus/{pci}/information"
    information.unlink(missing_ok=True)
    information.mkdir(parents=True)
    inventory = await discovery.refresh()
    assert len(inventory.gpus) == 7
    assert [str(information) in fault.reason for fault in inventory.faults] == [True]


async def test_a_module_version_that_cannot_be_read_is_a_state_with_a_reason(host, discovery):
    version = host.proc / "driver/nvidia/version"
    version.unlink(missing_ok=True)
    version.mkdir(parents=True)
    inventory = await discovery.refresh()
    assert inventory.state is DriverState.UNRESPONSIVE
    assert str(version) in inventory.reason


async def test_a_library_is_never_closed_while_a_call_is_inside_it(nvml, host, clock):
    """The caller of a scan may be cancelled, by a deadline or by SIGTERM; its thread is still in the library."""
    discovery = Discovery(nvml, host, clock=clock, deadline=5)
    inside, closed_inside = threading.Event(), []
    real, real_close = nvml.memory_bytes, nvml.close

    def slow(handle):
        inside.set()
        threading.Event().wait(0.1)
        result = real(handle)
        inside.clear()
        return result

    def close():
        closed_inside.append(inside.is_set())
        real_close()

    nvml.memory_bytes, nvml.close = slow, close
    scan = asyncio.create_task(discovery.refresh())
    await asyncio.to_thread(inside.wait)
    scan.cancel()
    await asyncio.gather(scan, return_exceptions=True)
    await discovery.close()
    assert closed_inside == [False]


async def test_an_nvml_that_does_not_end_does_not_hold_up_the_end_of_the_process(nvml, host, clock, monkeypatch):
    monkeypatch.setattr("gpu_dra.hardware.discovery._CLOSE_SECONDS", 0.05)
    discovery = Discovery(nvml, host, clock=clock, deadline=5)
    await discovery.refresh()
    hang = threading.Event()
    nvml.close = hang.wait
    await asyncio.wait_for(discovery.close(), 2)
    hang.set()


async def test_the_age_of_a_snapshot_grows_until_the_next_look(discovery, clock):
    await discovery.refresh()
    await clock.advance(100)
    assert discovery.age == 100
    await discovery.refresh()
    assert discovery.age == 0
