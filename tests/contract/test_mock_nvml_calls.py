"""The mocked NVML answers nvidia-ml-py as the real one does: identity, memory, topology, struct versions, error codes."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

import pynvml
import pytest

from hack.testbed.profiles import load_machine, machine_names
from tests.support.mocked_nvml import gpus, initialised, loaded, power_up

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from hack.testbed.mock_nvml import MockNvml

MIB = 1024 * 1024
MACHINES_WITH_GPUS = [name for name in machine_names() if load_machine(name).gpus]


@pytest.fixture
def mock(tmp_path: Path) -> MockNvml:
    return power_up(tmp_path, "h100x8")


@pytest.fixture
def nvml(mock: MockNvml) -> Iterator[Any]:
    with initialised(mock) as session:
        yield session


@pytest.mark.parametrize("name", MACHINES_WITH_GPUS)
def test_every_gpu_of_a_profile_is_told_as_the_profile_says(tmp_path: Path, name: str) -> None:
    machine = load_machine(name)
    with initialised(power_up(tmp_path, name)) as nvml:
        assert nvml.nvmlSystemGetDriverVersion() == machine.driver_version
        assert nvml.nvmlDeviceGetCount() == len(machine.gpus)
        for spec in (gpu for gpu in machine.gpus if not gpu.lost):
            gpu = nvml.nvmlDeviceGetHandleByIndex(spec.index)
            pci = nvml.nvmlDeviceGetPciInfo(gpu)
            told = (nvml.nvmlDeviceGetUUID(gpu), nvml.nvmlDeviceGetName(gpu), nvml.nvmlDeviceGetMinorNumber(gpu))
            assert told == (spec.uuid, spec.board.product, spec.minor)
            assert pci.busId == f"0000{spec.pci.upper()}"
            assert (pci.pciDeviceId, pci.pciSubSystemId) == (spec.board.pci_device, spec.board.pci_subsystem)
            assert nvml.nvmlDeviceGetMemoryInfo(gpu).total == spec.board.memory_mib * MIB
            assert nvml.nvmlDeviceGetModuleId(gpu) == spec.module_id


def test_a_gpu_is_found_by_index_uuid_and_pci_address_in_any_spelling(nvml: Any) -> None:
    spec = load_machine("h100x8").gpus[2]
    by_index = nvml.nvmlDeviceGetHandleByIndex(2)
    spellings = (spec.pci, spec.pci.upper(), f"0000{spec.pci.upper()}", spec.pci.removeprefix("0000:"))
    found = [nvml.nvmlDeviceGetHandleByUUID(spec.uuid), *(nvml.nvmlDeviceGetHandleByPciBusId(text) for text in spellings)]
    assert {nvml.nvmlDeviceGetIndex(gpu) for gpu in [by_index, *found]} == {2}


@pytest.mark.parametrize(
    ("ask", "error"),
    [
        (lambda n: n.nvmlDeviceGetHandleByIndex(8), pynvml.NVML_ERROR_INVALID_ARGUMENT),
        (lambda n: n.nvmlDeviceGetHandleByUUID("GPU-nobody"), pynvml.NVML_ERROR_NOT_FOUND),
        (lambda n: n.nvmlDeviceGetHandleByPciBusId("0000:ff:1f.7"), pynvml.NVML_ERROR_NOT_FOUND),
        (lambda n: n.nvmlDeviceGetHandleByPciBusId("nonsense"), pynvml.NVML_ERROR_NOT_FOUND),
        (lambda n: n.nvmlDeviceGetUUID(None), pynvml.NVML_ERROR_INVALID_ARGUMENT),
        (lambda n: n.nvmlDeviceGetGpuInstanceId(gpus(n)[0]), pynvml.NVML_ERROR_NOT_SUPPORTED),
        (lambda n: n.nvmlDeviceGetNumaNodeId(gpus(n)[0]), pynvml.NVML_ERROR_NOT_SUPPORTED),
    ],
)
def test_what_is_not_there_is_refused_with_nvmls_own_code(nvml: Any, ask: Any, error: int) -> None:
    with pytest.raises(pynvml.NVMLError) as refused:
        ask(nvml)
    assert refused.value.value == error


def test_nothing_works_before_init_or_after_the_last_shutdown(mock: MockNvml) -> None:
    with loaded(mock) as nvml:
        with pytest.raises(pynvml.NVMLError_Uninitialized):
            nvml.nvmlDeviceGetCount()
        nvml.nvmlInit()
        nvml.nvmlInit()
        nvml.nvmlShutdown()
        assert nvml.nvmlDeviceGetCount() == 8
        nvml.nvmlShutdown()
        with pytest.raises(pynvml.NVMLError_Uninitialized):
            nvml.nvmlDeviceGetCount()


def test_the_next_session_sees_another_machine(tmp_path: Path, mock: MockNvml) -> None:
    """A driver can be installed or exchanged while a process lives."""
    other = tmp_path / "other"
    other.mkdir()
    with loaded(mock) as nvml:
        nvml.nvmlInit()
        nvml.nvmlShutdown()
        with initialised(power_up(other, "a10x1")) as again:
            assert again.nvmlDeviceGetCount() == 1


def test_a_machine_without_gpus_lets_in_only_who_says_so(tmp_path: Path) -> None:
    with loaded(power_up(tmp_path, "nogpu")) as nvml:
        with pytest.raises(pynvml.NVMLError_NotFound):
            nvml.nvmlInit()
        nvml.nvmlInitWithFlags(pynvml.NVML_INIT_FLAG_NO_GPUS)
        assert nvml.nvmlDeviceGetCount() == 0


@pytest.mark.parametrize(
    ("function", "struct", "version"),
    [
        ("nvmlDeviceGetMemoryInfo_v2", pynvml.c_nvmlMemory_v2_t, 0x02000028),
        ("nvmlDeviceGetAddressingMode", pynvml.c_nvmlDeviceAddressingMode_t, 0x01000008),
        ("nvmlDeviceGetGpuFabricInfoV", pynvml.c_nvmlGpuFabricInfo_v2_t, 0x02000024),
        ("nvmlDeviceGetGpuFabricInfoV", pynvml.c_nvmlGpuFabricInfo_v3_t, 0x03000028),
    ],
)
def test_a_versioned_struct_is_filled_only_with_its_version_word(nvml: Any, function: str, struct: Any, version: int) -> None:
    gpu, answer = gpus(nvml)[0], struct()
    answer.version = version
    assert getattr(nvml.nvmlLib, function)(gpu, ctypes.byref(answer)) == pynvml.NVML_SUCCESS
    answer.version = version + 1
    assert getattr(nvml.nvmlLib, function)(gpu, ctypes.byref(answer)) == pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH


def test_a_buffer_that_is_too_small_is_told_so(nvml: Any) -> None:
    buffer = ctypes.create_string_buffer(8)
    assert nvml.nvmlLib.nvmlDeviceGetUUID(gpus(nvml)[0], buffer, 8) == pynvml.NVML_ERROR_INSUFFICIENT_SIZE


def test_memory_of_a_process_is_used_memory(mock: MockNvml, nvml: Any) -> None:
    mock.start_process(1, 4711, used_mib=1000)
    gpu = gpus(nvml)[1]
    first, second = nvml.nvmlDeviceGetMemoryInfo(gpu), nvml.nvmlDeviceGetMemoryInfo(gpu, version=pynvml.nvmlMemory_v2)
    assert (first.used, second.used, second.reserved) == (1480 * MIB, 1000 * MIB, 480 * MIB)
    assert first.total == first.used + first.free
    assert [(p.pid, p.usedGpuMemory) for p in nvml.nvmlDeviceGetComputeRunningProcesses(gpu)] == [(4711, 1000 * MIB)]
    mock.end_process(4711)
    assert nvml.nvmlDeviceGetComputeRunningProcesses(gpu) == []


def test_an_hgx_box_has_a_complete_fabric_with_an_all_zero_cluster(nvml: Any) -> None:
    """A single box must not look like part of a multi-node fabric."""
    info = pynvml.c_nvmlGpuFabricInfo_v3_t()
    nvml.nvmlDeviceGetGpuFabricInfoV(gpus(nvml)[0], ctypes.byref(info))
    assert (info.state, info.status, bytes(info.clusterUuid)) == (pynvml.NVML_GPU_FABRIC_STATE_COMPLETED, 0, bytes(16))


def test_a_rack_scale_tray_knows_cluster_clique_and_its_place_in_the_rack(tmp_path: Path) -> None:
    with initialised(power_up(tmp_path, "gb300x4")) as nvml:
        gpu, fabric, platform = gpus(nvml)[0], pynvml.c_nvmlGpuFabricInfo_v4_t(), pynvml.c_nvmlPlatformInfo_v2_t()
        nvml.nvmlDeviceGetGpuFabricInfo_v4(gpu, ctypes.byref(fabric))
        nvml.nvmlDeviceGetPlatformInfo(gpu, ctypes.byref(platform))
        assert (fabric.cliques[0].id, fabric.numCliques) == (32766, 1)
        assert bytes(fabric.clusterUuid) != bytes(16)
        assert tuple(map(ord, (platform.slotNumber, platform.trayIndex, platform.hostId))) == (25, 15, 1)


def test_gpus_under_one_pcie_root_are_nearer_than_those_of_one_numa_node(tmp_path: Path) -> None:
    with initialised(power_up(tmp_path, "a100x8-p4d")) as nvml:
        first, *others = gpus(nvml)
        levels = [nvml.nvmlDeviceGetTopologyCommonAncestor(first, other) for other in others]
        assert levels == [30, 40, 40, 50, 50, 50, 50]
        assert nvml.nvmlDeviceGetCpuAffinity(first, 2)[0] == 0xFFFF000000FFFFFF


def test_a_board_without_nvlink_or_mig_says_so(tmp_path: Path) -> None:
    with initialised(power_up(tmp_path, "t4x1")) as nvml:
        gpu = gpus(nvml)[0]
        for ask in (
            nvml.nvmlDeviceGetMigMode,
            lambda g: nvml.nvmlDeviceGetNvLinkState(g, 0),
            lambda g: nvml.nvmlDeviceSetMigMode(g, 1),
        ):
            with pytest.raises(pynvml.NVMLError_NotSupported):
                ask(gpu)
        assert nvml.nvmlDeviceGetBrand(gpu) == pynvml.NVML_BRAND_NVIDIA


def test_a_field_that_is_not_known_fails_alone(nvml: Any) -> None:
    values = nvml.nvmlDeviceGetFieldValues(gpus(nvml)[0], [pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION, 1])
    assert [value.nvmlReturn for value in values] == [pynvml.NVML_SUCCESS, pynvml.NVML_ERROR_NOT_SUPPORTED]
