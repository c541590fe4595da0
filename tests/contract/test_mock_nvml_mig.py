"""MIG on the mocked NVML: what may stand together, what a change does, what stays after a reset or a reboot."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pynvml
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hack.testbed.profiles import GpuInstanceProfile, Mig, load_machine
from tests.support.mocked_nvml import gpus, initialised, power_up

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from hack.testbed.mock_nvml import MockNvml

FULL = {1: 0, 2: 1, 3: 2, 4: 3, 7: 4}
"""Compute-instance profile that fills a GPU instance of so many slices."""


@pytest.fixture
def hopper(tmp_path: Path) -> MockNvml:
    (tmp_path / "proc" / "capabilities").mkdir(parents=True)
    (tmp_path / "proc" / ".mock-host").touch()
    mock = power_up(tmp_path, "h100x8", host_tree=tmp_path / "proc")
    mock.mig_mode(0, enabled=True)
    return mock


@pytest.fixture
def nvml(hopper: MockNvml) -> Iterator[Any]:
    with initialised(hopper) as session:
        yield session


@pytest.fixture
def gpu(nvml: Any) -> Any:
    return gpus(nvml)[0]


def place(nvml: Any, gpu: Any, profile_id: int, start: int, size: int) -> Any:
    placement = pynvml.c_nvmlGpuInstancePlacement_t(start, size)
    return nvml.nvmlDeviceCreateGpuInstanceWithPlacement(gpu, profile_id, ctypes.byref(placement))


def instances(nvml: Any, gpu: Any, profile_id: int) -> list[Any]:
    """GPU instances of a profile, by NVML's call that fills an array."""
    array, count = (pynvml.c_nvmlGpuInstance_t * 8)(), ctypes.c_uint()
    nvml.nvmlDeviceGetGpuInstances(gpu, profile_id, array, ctypes.byref(count))
    return list(array[: count.value])


def mig_devices(nvml: Any, gpu: Any) -> list[Any]:
    devices = []
    for index in range(nvml.nvmlDeviceGetMaxMigDeviceCount(gpu)):
        try:
            devices.append(nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, index))
        except pynvml.NVMLError_NotFound:
            break
    return devices


def test_hopper_switches_at_once_and_back(nvml: Any) -> None:
    other = gpus(nvml)[1]
    assert nvml.nvmlDeviceSetMigMode(other, 1) == pynvml.NVML_SUCCESS
    assert nvml.nvmlDeviceGetMigMode(other) == [1, 1]
    assert nvml.nvmlDeviceSetMigMode(other, 0) == pynvml.NVML_SUCCESS
    assert nvml.nvmlDeviceGetMigMode(other) == [0, 0]


def test_ampere_waits_for_a_reset_and_keeps_the_mode_over_a_reboot_but_no_partition(tmp_path: Path) -> None:
    mock = power_up(tmp_path, "a100x8")
    with initialised(mock) as nvml:
        gpu = gpus(nvml)[0]
        assert nvml.nvmlDeviceSetMigMode(gpu, 1) == pynvml.NVML_ERROR_RESET_REQUIRED
        assert nvml.nvmlDeviceGetMigMode(gpu) == [0, 1]
        mock.reset(0)
        assert nvml.nvmlDeviceGetMigMode(gpu) == [1, 1]
        mock.partition(0, 19)
        mock.reboot()
        assert (nvml.nvmlDeviceGetMigMode(gpu), mig_devices(nvml, gpu)) == ([1, 1], [])


def test_hopper_forgets_mode_and_partitions_at_a_reboot(hopper: MockNvml, nvml: Any, gpu: Any) -> None:
    hopper.partition(0, 9)
    hopper.reboot()
    assert nvml.nvmlDeviceGetMigMode(gpu) == [0, 0]
    hopper.mig_mode(0, enabled=True)
    assert mig_devices(nvml, gpu) == []


def test_the_mode_stays_while_there_are_partitions(nvml: Any, gpu: Any) -> None:
    place(nvml, gpu, 19, 0, 1)
    assert nvml.nvmlDeviceSetMigMode(gpu, 0) == pynvml.NVML_ERROR_IN_USE
    assert nvml.nvmlDeviceGetMigMode(gpu) == [1, 1]


def test_partitions_need_the_mode(nvml: Any) -> None:
    with pytest.raises(pynvml.NVMLError_NotSupported):
        nvml.nvmlDeviceCreateGpuInstance(gpus(nvml)[1], 19)


def test_profiles_and_placements_can_be_asked_before_the_mode_is_on(nvml: Any) -> None:
    """What a GPU could be cut into must be known before anyone decides to cut it."""
    gpu, count = gpus(nvml)[1], ctypes.c_uint()
    info = nvml.nvmlDeviceGetGpuInstanceProfileInfo(gpu, pynvml.NVML_GPU_INSTANCE_PROFILE_3_SLICE)
    assert (info.name, info.id, info.multiprocessorCount) == ("MIG 3g.40gb", 9, 60)
    nvml.nvmlDeviceGetGpuInstancePossiblePlacements(gpu, info.id, None, ctypes.byref(count))
    array = (pynvml.c_nvmlGpuInstancePlacement_t * count.value)()
    nvml.nvmlDeviceGetGpuInstancePossiblePlacements(gpu, info.id, array, ctypes.byref(count))
    assert [(p.start, p.size) for p in array] == [(0, 4), (4, 4)]
    count.value = 1
    with pytest.raises(pynvml.NVMLError_InsufficientSize):
        nvml.nvmlDeviceGetGpuInstancePossiblePlacements(gpu, info.id, array, ctypes.byref(count))


def test_the_profile_loop_meets_the_two_refusals_nvml_gives(nvml: Any, gpu: Any) -> None:
    answers: dict[int, str] = {}
    for kind in range(pynvml.NVML_GPU_INSTANCE_PROFILE_COUNT + 1):
        try:
            answers[kind] = nvml.nvmlDeviceGetGpuInstanceProfileInfo(gpu, kind).name
        except (pynvml.NVMLError_NotSupported, pynvml.NVMLError_InvalidArgument) as error:
            answers[kind] = type(error).__name__
    assert answers[7] == "MIG 1g.10gb+me"
    assert answers[5] == "NVMLError_NotSupported"
    assert answers[pynvml.NVML_GPU_INSTANCE_PROFILE_COUNT] == "NVMLError_InvalidArgument"


def test_a_mig_device_is_known_by_uuid_ids_and_attributes(nvml: Any, gpu: Any) -> None:
    instance = place(nvml, gpu, 9, 4, 4)
    info = nvml.nvmlComputeInstanceGetInfo(nvml.nvmlGpuInstanceCreateComputeInstance(instance, FULL[3]))
    device = nvml.nvmlDeviceGetHandleByUUID(nvml.nvmlDeviceGetUUID(info.device))
    attributes = nvml.nvmlDeviceGetAttributes_v2(device)
    assert nvml.nvmlDeviceGetName(device) == "NVIDIA H100 80GB HBM3 MIG 3g.40gb"
    assert nvml.nvmlDeviceIsMigDeviceHandle(device).value == 1
    assert nvml.nvmlDeviceGetUUID(nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(device)) == nvml.nvmlDeviceGetUUID(gpu)
    assert (attributes.multiprocessorCount, attributes.gpuInstanceSliceCount, attributes.memorySizeMB) == (60, 3, 40448)
    assert nvml.nvmlDeviceGetMemoryInfo(device).total == 40448 * 1024 * 1024
    told = nvml.nvmlGpuInstanceGetInfo(instance)
    assert (told.id, told.profileId, told.placement.start) == (nvml.nvmlDeviceGetGpuInstanceId(device), 9, 4)


def test_a_gpu_instance_can_be_divided_and_each_part_has_its_name(nvml: Any, gpu: Any) -> None:
    instance = place(nvml, gpu, 9, 0, 4)
    two, one = (nvml.nvmlGpuInstanceCreateComputeInstance(instance, profile) for profile in (FULL[2], FULL[1]))
    with pytest.raises(pynvml.NVMLError_InsufficientResources):
        nvml.nvmlGpuInstanceCreateComputeInstance(instance, FULL[1])
    names = [nvml.nvmlDeviceGetName(nvml.nvmlComputeInstanceGetInfo(part).device) for part in (two, one)]
    assert [name.partition("MIG ")[2] for name in names] == ["2c.3g.40gb", "1c.3g.40gb"]
    assert nvml.nvmlGpuInstanceGetComputeInstanceProfileInfo(instance, FULL[1], 0).instanceCount == 3


def test_what_is_in_use_cannot_be_destroyed(hopper: MockNvml, nvml: Any, gpu: Any) -> None:
    instance = place(nvml, gpu, 19, 3, 1)
    compute = nvml.nvmlGpuInstanceCreateComputeInstance(instance, FULL[1])
    info = nvml.nvmlComputeInstanceGetInfo(compute)
    hopper.start_process(0, 99, used_mib=1, instances=(nvml.nvmlGpuInstanceGetInfo(instance).id, info.id))
    with pytest.raises(pynvml.NVMLError_InUse):
        nvml.nvmlComputeInstanceDestroy(compute)
    hopper.end_process(99)
    with pytest.raises(pynvml.NVMLError_InUse):
        nvml.nvmlGpuInstanceDestroy(instance)
    nvml.nvmlComputeInstanceDestroy(compute)
    nvml.nvmlGpuInstanceDestroy(instance)
    assert instances(nvml, gpu, 19) == []


def test_a_made_again_device_has_the_old_ids_and_a_new_uuid_and_the_old_handle_is_dead(nvml: Any, gpu: Any) -> None:
    def make() -> tuple[Any, Any, int, str]:
        instance = place(nvml, gpu, 14, 2, 2)
        compute = nvml.nvmlGpuInstanceCreateComputeInstance(instance, FULL[2])
        device = nvml.nvmlComputeInstanceGetInfo(compute).device
        return instance, compute, nvml.nvmlDeviceGetGpuInstanceId(device), nvml.nvmlDeviceGetUUID(device)

    instance, compute, gi, uuid = make()
    nvml.nvmlComputeInstanceDestroy(compute)
    nvml.nvmlGpuInstanceDestroy(instance)
    _, _, gi_again, uuid_again = make()
    assert (gi_again, uuid_again == uuid) == (gi, False)
    with pytest.raises(pynvml.NVMLError_NotFound):
        nvml.nvmlGpuInstanceGetInfo(instance)


def test_automatic_placement_scatters_so_that_small_ones_first_can_fail(nvml: Any, gpu: Any) -> None:
    """Seen on A100: `-cgi 19,19,14,9` ends in InsufficientResources, the other way round works."""
    for profile in (19, 19, 14):
        nvml.nvmlDeviceCreateGpuInstance(gpu, profile)
    with pytest.raises(pynvml.NVMLError_InsufficientResources):
        nvml.nvmlDeviceCreateGpuInstance(gpu, 9)


def test_the_capability_files_of_the_host_follow_the_partitions(tmp_path: Path, hopper: MockNvml) -> None:
    tree = tmp_path / "proc" / "capabilities" / "gpu0" / "mig"
    hopper.partition(0, 9, start=4)
    gi = hopper.show()["gpus"][0]["gpu_instances"][0]["id"]
    lines = (tree / f"gi{gi}" / "ci0" / "access").read_text().splitlines()
    assert lines == [f"DeviceFileMinor: {3 + 9 * gi + 1}", "DeviceFileMode: 292", "DeviceFileModify: 1"]
    hopper.unpartition(0, gi)
    assert list(tree.iterdir()) == []


@dataclass
class Model:
    """What MIG's rules say, written down again: every limit is checked from nothing for each change."""

    mig: Mig
    held: list[tuple[GpuInstanceProfile, int]] = field(default_factory=list)

    def fits(self, profile: GpuInstanceProfile, start: int) -> bool:
        after = [*self.held, (profile, start)]
        cells = [cell for p, s in after for cell in range(s, s + p.size)]
        totals = {engine: max(getattr(p, engine) for p in self.mig.profiles) for engine in ENGINES}
        return (
            len(cells) == len(set(cells))
            and sum(p.slices for p, _ in after) <= self.mig.compute_slices
            and sum(p is profile for p, _ in after) <= profile.instances
            and all(sum(getattr(p, engine) for p, _ in after) <= total for engine, total in totals.items())
        )


ENGINES = ("decoders", "encoders", "jpeg_engines", "ofa_engines")


@pytest.fixture(scope="module", params=["h100x8", "a30x4", "rtxpro6000x1", "a100x8"])
def board(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, MockNvml, Mig]]:
    mock = power_up(tmp_path_factory.mktemp("board"), request.param)
    mock.mig_mode(0, enabled=True)
    mig = load_machine(request.param).gpus[0].board.mig
    assert mig is not None
    with initialised(mock) as nvml:
        yield nvml, mock, mig


def change(nvml: Any, gpu: Any, model: Model, step: tuple[int, int, bool]) -> None:
    """Make an instance, or destroy one, on both; they must agree."""
    number, place_number, destroys = step
    if destroys and model.held:
        profile, start = model.held.pop(number % len(model.held))
        for instance in instances(nvml, gpu, profile.id):
            if nvml.nvmlGpuInstanceGetInfo(instance).placement.start == start:
                nvml.nvmlGpuInstanceDestroy(instance)
        return
    profile = model.mig.profiles[number % len(model.mig.profiles)]
    start = profile.starts[place_number % len(profile.starts)]
    if model.fits(profile, start):
        place(nvml, gpu, profile.id, start, profile.size)
        model.held.append((profile, start))
    else:
        with pytest.raises(pynvml.NVMLError_InsufficientResources):
            place(nvml, gpu, profile.id, start, profile.size)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20), st.booleans()), max_size=25))
def test_what_fits_beside_what_agrees_with_the_rules_written_down_again(board: tuple[Any, MockNvml, Mig], steps: list[Any]) -> None:
    nvml, mock, mig = board
    mock.reset(0)
    gpu, model = gpus(nvml)[0], Model(mig)
    for step in steps:
        change(nvml, gpu, model, step)
    for profile in mig.profiles:
        told = sorted(nvml.nvmlGpuInstanceGetInfo(instance).placement.start for instance in instances(nvml, gpu, profile.id))
        assert told == sorted(start for held, start in model.held if held is profile)
        can_have_more = any(model.fits(profile, start) for start in profile.starts)
        assert (nvml.nvmlDeviceGetGpuInstanceRemainingCapacity(gpu, profile.id) > 0) == can_have_more
