"""Faults on command, events, and one machine for all processes, whatever dies."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import pynvml
import pytest

from hack.testbed.cluster.errors import LabError
from hack.testbed.mock_nvml import build
from tests.support.mocked_nvml import gpus, initialised, loaded, power_up

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from hack.testbed.mock_nvml import MockNvml

ALL_EVENTS = (
    pynvml.nvmlEventTypeXidCriticalError
    | pynvml.nvmlEventTypeDoubleBitEccError
    | pynvml.nvmlEventTypeGpuUnavailableError
    | pynvml.nvmlEventTypeGpuRecoveryAction
)
WHOLE_GPU = 0xFFFFFFFF


@pytest.fixture
def mock(tmp_path: Path) -> MockNvml:
    return power_up(tmp_path, "h100x8")


@pytest.fixture
def nvml(mock: MockNvml) -> Iterator[Any]:
    with initialised(mock) as session:
        yield session


def code(ask: Any, *arguments: Any) -> int:
    """The NVML code that a call ends in."""
    try:
        ask(*arguments)
    except pynvml.NVMLError as error:
        return int(error.value)
    return pynvml.NVML_SUCCESS


def in_background(ask: Any, *arguments: Any) -> tuple[threading.Thread, list[int]]:
    """Call in a thread; its code appears in the list when it is over."""
    result: list[int] = []
    thread = threading.Thread(target=lambda: result.append(code(ask, *arguments)), daemon=True)
    thread.start()
    return thread, result


def test_a_fault_strikes_one_function_of_one_gpu(mock: MockNvml, nvml: Any) -> None:
    mock.fault("nvmlDeviceGetUUID", gpu=3, error=pynvml.NVML_ERROR_UNKNOWN)
    assert [code(nvml.nvmlDeviceGetUUID, gpu) for gpu in gpus(nvml)] == [0, 0, 0, 999, 0, 0, 0, 0]
    assert code(nvml.nvmlDeviceGetName, gpus(nvml)[3]) == pynvml.NVML_SUCCESS


def test_a_fault_passes_some_calls_strikes_some_and_is_over(mock: MockNvml, nvml: Any) -> None:
    gpu = gpus(nvml)[0]
    mock.fault("nvmlDeviceGetUUID", error=pynvml.NVML_ERROR_TIMEOUT, after=2, count=3)
    assert [code(nvml.nvmlDeviceGetUUID, gpu) for _ in range(7)] == [0, 0, 10, 10, 10, 0, 0]


def test_a_fault_named_without_the_version_suffix_means_every_version(mock: MockNvml, nvml: Any) -> None:
    mock.fault("nvmlDeviceGetHandleByIndex", gpu=1, error=pynvml.NVML_ERROR_NO_PERMISSION)
    assert code(nvml.nvmlDeviceGetHandleByIndex, 1) == pynvml.NVML_ERROR_NO_PERMISSION
    assert code(nvml.nvmlDeviceGetHandleByIndex, 0) == pynvml.NVML_SUCCESS


def test_a_fault_on_a_function_that_is_not_there_is_refused(mock: MockNvml) -> None:
    """A misspelt fault would never strike, and the test that set it could not fail."""
    with pytest.raises(LabError, match="nvmlDeviceGetUUIDs"):
        mock.fault("nvmlDeviceGetUUIDs", error=1)


def test_an_absent_symbol_looks_like_one_to_nvidia_ml_py(mock: MockNvml, nvml: Any) -> None:
    mock.fault("nvmlDeviceGetAddressingMode", error=pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
    with pytest.raises(pynvml.NVMLError_FunctionNotFound):
        nvml.nvmlDeviceGetAddressingMode(gpus(nvml)[0])


def test_a_hung_call_goes_on_when_the_fault_is_cleared_and_blocks_nobody_else(mock: MockNvml, nvml: Any) -> None:
    first, second = gpus(nvml)[:2]
    fault = mock.fault("nvmlDeviceGetName", gpu=0, hang=True)
    thread, result = in_background(nvml.nvmlDeviceGetName, first)
    assert code(nvml.nvmlDeviceGetName, second) == pynvml.NVML_SUCCESS
    assert mock.show()["faults"][0]["id"] == fault
    assert result == []
    mock.clear_fault(fault)
    thread.join(timeout=10)
    assert result == [pynvml.NVML_SUCCESS]


def test_a_session_may_end_while_a_call_hangs(mock: MockNvml) -> None:
    """The mapping must outlive the call, or a shutdown during a hang ends the process."""
    with loaded(mock) as nvml:
        nvml.nvmlInit()
        mock.fault("nvmlDeviceGetName", hang=True)
        thread, result = in_background(nvml.nvmlDeviceGetName, gpus(nvml)[0])
        deadline = time.monotonic() + 10
        while not mock.show()["faults"][0]["seen"] and time.monotonic() < deadline:
            thread.join(timeout=0.01)
        nvml.nvmlShutdown()
        mock.clear_faults()
        thread.join(timeout=10)
        assert result == [pynvml.NVML_SUCCESS]


def test_a_slow_call_takes_its_time(mock: MockNvml, nvml: Any) -> None:
    mock.fault("nvmlDeviceGetName", delay_ms=150)
    began = time.monotonic()
    nvml.nvmlDeviceGetName(gpus(nvml)[0])
    assert time.monotonic() - began >= 0.15


def test_a_lost_gpu_fails_in_everything_and_only_there_until_it_is_restored(mock: MockNvml, nvml: Any) -> None:
    gpu = gpus(nvml)[5]
    mock.lose(5)
    questions = (nvml.nvmlDeviceGetUUID, nvml.nvmlDeviceGetMigMode, nvml.nvmlDeviceGetMemoryInfo, nvml.nvmlDeviceGetPciInfo)
    assert {code(ask, gpu) for ask in questions} == {pynvml.NVML_ERROR_GPU_IS_LOST}
    assert code(nvml.nvmlDeviceGetHandleByIndex, 5) == pynvml.NVML_ERROR_GPU_IS_LOST
    assert (nvml.nvmlDeviceGetCount(), code(nvml.nvmlDeviceGetHandleByIndex, 4)) == (8, pynvml.NVML_SUCCESS)
    mock.restore(5)
    assert code(nvml.nvmlDeviceGetUUID, gpu) == pynvml.NVML_SUCCESS


@pytest.mark.parametrize(
    ("happens", "error"),
    [
        (lambda mock: mock.driver_loaded(loaded=False), pynvml.NVML_ERROR_DRIVER_NOT_LOADED),
        (lambda mock: mock.kernel_version("580.142"), pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH),
        (lambda mock: mock.fault("nvmlInitWithFlags", error=999), pynvml.NVML_ERROR_UNKNOWN),
        (lambda mock: mock.state.unlink(), pynvml.NVML_ERROR_DRIVER_NOT_LOADED),
    ],
)
def test_a_driver_that_is_not_right_refuses_the_session(mock: MockNvml, happens: Any, error: int) -> None:
    happens(mock)
    with loaded(mock) as nvml:
        assert code(nvml.nvmlInit) == error


def test_the_librarys_own_file_name_says_which_driver_it_belongs_to(tmp_path: Path, mock: MockNvml) -> None:
    """After an upgrade the old file is still mapped by running processes; the name is how the mock tells them apart."""
    old, new = (tmp_path / f"libnvidia-ml.so.{version}" for version in ("580.105.08", "590.10"))
    for path in (old, new):
        path.write_bytes(build().library.read_bytes())
    mock.driver_version("590.10")
    for path, expected in ((old, pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH), (new, pynvml.NVML_SUCCESS)):
        with loaded(mock, library=path) as nvml:
            assert code(nvml.nvmlInit) == expected
    with loaded(mock, library=new) as nvml:
        nvml.nvmlInit()
        assert (nvml.nvmlSystemGetDriverVersion(), nvml.nvmlSystemGetNVMLVersion()) == ("590.10", "13.590.10")


def wait_for_event(nvml: Any, events: Any, *, timeout_ms: int = 5000) -> tuple[int, int, int, int]:
    data = nvml.nvmlEventSetWait_v2(events, timeout_ms)
    return nvml.nvmlDeviceGetIndex(data.device), data.eventType, data.eventData, data.gpuInstanceId


def registered(nvml: Any, *indices: int) -> Any:
    events = nvml.nvmlEventSetCreate()
    for index in indices:
        nvml.nvmlDeviceRegisterEvents(gpus(nvml)[index], ALL_EVENTS, events)
    return events


def test_each_event_set_gets_each_event_of_its_gpus_once(mock: MockNvml, nvml: Any) -> None:
    mock.xid(2, 13)  # before anyone listened
    one, other = registered(nvml, 2), registered(nvml, 2, 3)
    mock.xid(3, 31)
    mock.xid(2, 94, instances=(1, 0))
    assert wait_for_event(nvml, one) == (2, pynvml.nvmlEventTypeXidCriticalError, 94, 1)
    assert [wait_for_event(nvml, other)[2] for _ in range(2)] == [31, 94]
    for events in (one, other):
        with pytest.raises(pynvml.NVMLError_Timeout):
            nvml.nvmlEventSetWait_v2(events, 0)
        nvml.nvmlEventSetFree(events)


def test_a_waiting_listener_is_woken_by_another_process(mock: MockNvml, nvml: Any) -> None:
    events = registered(nvml, 0)
    thread, result = in_background(nvml.nvmlEventSetWait_v2, events, 60_000)
    mock.xid(0, 48)
    thread.join(timeout=10)
    assert result == [pynvml.NVML_SUCCESS]
    nvml.nvmlEventSetFree(events)


def test_a_recovery_action_is_an_event_and_a_field(mock: MockNvml, nvml: Any) -> None:
    events = registered(nvml, 1)
    mock.recovery_action(1, 4)
    assert wait_for_event(nvml, events) == (1, pynvml.nvmlEventTypeGpuRecoveryAction, 4, WHOLE_GPU)
    value = nvml.nvmlDeviceGetFieldValues(gpus(nvml)[1], [pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION])[0]
    assert value.value.uiVal == 4
    nvml.nvmlEventSetFree(events)


def test_losing_a_gpu_is_told_as_xid_79(mock: MockNvml, nvml: Any) -> None:
    events = registered(nvml, 6)
    mock.lose(6)
    data = nvml.nvmlEventSetWait_v2(events, 5000)
    assert (data.eventType, data.eventData) == (pynvml.nvmlEventTypeXidCriticalError, 79)
    nvml.nvmlEventSetFree(events)


def test_an_event_type_that_no_gpu_has_is_refused(nvml: Any) -> None:
    events = nvml.nvmlEventSetCreate()
    assert code(nvml.nvmlDeviceRegisterEvents, gpus(nvml)[0], pynvml.nvmlEventTypeClock, events) == pynvml.NVML_ERROR_NOT_SUPPORTED
    nvml.nvmlEventSetFree(events)


def test_a_listener_that_was_overtaken_goes_on_with_what_is_still_there(mock: MockNvml, nvml: Any) -> None:
    """A flood of XIDs must neither block the machine nor wedge the reader."""
    events = registered(nvml, 0)
    for _ in range(260):
        mock.xid(0, 1)
    seen = 0
    while code(nvml.nvmlEventSetWait_v2, events, 0) == pynvml.NVML_SUCCESS:
        seen += 1
    assert seen == 256
    nvml.nvmlEventSetFree(events)


HOLD = "import fcntl, sys; f = open(sys.argv[1], 'r+'); fcntl.flock(f, fcntl.LOCK_EX); print('held', flush=True); sys.stdin.read()"


def test_a_killed_holder_of_the_lock_stops_nobody(mock: MockNvml, nvml: Any) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(mock.state)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        thread, result = in_background(nvml.nvmlDeviceGetCount)
        assert result == []
        holder.send_signal(signal.SIGKILL)
        thread.join(timeout=10)
        assert result == [pynvml.NVML_SUCCESS]


PARTITION_FOR_EVER = """
import itertools, pynvml
pynvml.nvmlInit()
gpu = pynvml.nvmlDeviceGetHandleByIndex(0)
for cycle in itertools.count():
    if cycle == 20:
        print("ready", flush=True)
    instance = pynvml.nvmlDeviceCreateGpuInstance(gpu, 19)
    compute = pynvml.nvmlGpuInstanceCreateComputeInstance(instance, 0)
    pynvml.nvmlComputeInstanceDestroy(compute)
    pynvml.nvmlGpuInstanceDestroy(instance)
"""


def test_the_machine_is_whole_after_a_kill_in_the_middle_of_partitioning(mock: MockNvml, nvml: Any) -> None:
    mock.mig_mode(0, enabled=True)
    environment = {"MOCK_NVML_STATE": str(mock.state), "LD_LIBRARY_PATH": str(build().library.parent)}
    for _ in range(5):
        with subprocess.Popen(
            [sys.executable, "-c", PARTITION_FOR_EVER], env=environment, stdout=subprocess.PIPE, text=True
        ) as child:
            assert child.stdout is not None
            assert child.stdout.readline() == "ready\n"
            child.kill()
        for instance in mock.show()["gpus"][0]["gpu_instances"]:
            assert instance["profile"] == "1g.10gb"
            mock.unpartition(0, instance["id"])
    assert nvml.nvmlDeviceGetGpuInstanceRemainingCapacity(gpus(nvml)[0], 19) == 7
