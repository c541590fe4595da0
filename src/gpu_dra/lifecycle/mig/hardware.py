"""Read and change a GPU's geometry through NVML. Blocking: runs in the NVML thread. Decides nothing.

A change that is killed at any line leaves a GPU that `plan` sees as not cut as wanted, so that the next run starts over.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final

from gpu_dra.core.errors import Broken, Conflict, NotReady
from gpu_dra.hardware import sysfs
from gpu_dra.hardware.nvml import GPU_INSTANCE_PROFILE_KINDS
from gpu_dra.hardware.nvml_errors import InvalidArgument, NotSupported, NvmlError, error_for
from gpu_dra.lifecycle.mig.geometry import Board, Partition, Profile

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpu_dra.hardware.host import HostPaths
    from gpu_dra.hardware.nvml import ComputeInstanceHandle, GpuHandle, GpuInstanceHandle, Nvml
    from gpu_dra.lifecycle.mig.geometry import GeometryChange
    from gpu_dra.model.mig import Placement

COMPUTE_INSTANCE_PROFILE_KINDS: Final = range(0x0B)
"""Values of `NVML_COMPUTE_INSTANCE_PROFILE_*`."""


def read_boards(nvml: Nvml, host: HostPaths) -> tuple[Board, ...]:
    """Every GPU as it is cut now. Raises NvmlError: a node of which one GPU does not answer is not changed."""
    return tuple(read_board(nvml, host, index) for index in range(nvml.gpu_count()))


def read_boards_that_answer(nvml: Nvml, host: HostPaths) -> tuple[Board, ...]:
    """Those GPUs of which everything can be read."""
    found = []
    for index in range(nvml.gpu_count()):
        with contextlib.suppress(NvmlError):
            found.append(read_board(nvml, host, index))
    return tuple(found)


def read_board(nvml: Nvml, host: HostPaths, index: int) -> Board:
    """One GPU as it is cut now."""
    gpu = nvml.gpu(index)
    pci = nvml.pci(gpu)
    try:
        mode = nvml.mig_mode(gpu)
    except NotSupported:
        mode = None
    profiles = tuple(_profiles(nvml, gpu)) if mode is not None else ()
    return Board(
        index=index,
        minor=nvml.minor(gpu),
        uuid=nvml.uuid(gpu),
        product_name=nvml.name(gpu),
        pci=str(pci),
        pci_id=sysfs.pci_id(host, pci) or "",
        mode=mode,
        profiles=profiles,
        partitions=tuple(_partitions(nvml, gpu, profiles)) if mode is not None and mode.current else (),
    )


def clear(nvml: Nvml, board: Board) -> None:
    """Destroy every instance of a GPU. Raises InUse when a process runs on one."""
    if board.mode is None or not board.mode.current:
        return
    gpu = nvml.gpu(board.index)
    for profile in _profiles(nvml, gpu):
        for instance in nvml.gpu_instances(gpu, profile.profile_id):
            for compute in _compute_instances(nvml, instance):
                nvml.destroy_compute_instance(compute)
            nvml.destroy_gpu_instance(instance)


def switch_mode(nvml: Nvml, change: GeometryChange) -> None:
    """Change MIG mode. Raises Conflict when a process uses the GPU, NotReady when a reset must come first."""
    board = change.board
    result = nvml.set_mig_mode(nvml.gpu(board.index), enabled=change.wish.enabled)
    if result.mode.current == change.wish.enabled:
        return
    if result.mode.pending == change.wish.enabled:
        raise reset_needed(change)
    word = "on" if change.wish.enabled else "off"
    reason = error_for("nvmlDeviceSetMigMode", result.blocked_by) if result.blocked_by else "NVML gives no reason"
    raise Conflict(f"{board.name}: MIG could not be switched {word}: {reason}")


def reset_needed(change: GeometryChange) -> NotReady:
    """The answer of a GPU that takes another mode at its next reset only."""
    word = "on" if change.wish.enabled else "off"
    return NotReady(
        f"{change.board.name}: MIG is switched {word} by the next reset of the GPU; drain the node, then run "
        f"nvidia-smi --gpu-reset -i {change.board.pci} or reboot"
    )


def build(nvml: Nvml, board: Board, partitions: tuple[Partition, ...]) -> None:
    """Make the partitions on an empty GPU in MIG mode, each filled by one compute instance."""
    gpu = nvml.gpu(board.index)
    by_name = {profile.name: profile for profile in board.profiles}
    for partition in partitions:
        profile = by_name[partition.profile_name]
        instance = nvml.create_gpu_instance(gpu, profile.profile_id, partition.placement)
        nvml.create_compute_instance(instance, _filling_profile(nvml, instance, profile))


def _profiles(nvml: Nvml, gpu: GpuHandle) -> Iterator[Profile]:
    for kind in GPU_INSTANCE_PROFILE_KINDS:
        try:
            found = nvml.gpu_instance_profile(gpu, kind)
            placements = nvml.possible_placements(gpu, found.profile.profile_id)
        except (NotSupported, InvalidArgument):  # not of this board, or of a driver that tells only when MIG is on
            continue
        yield Profile(
            name=found.profile.name,
            profile_id=found.profile.profile_id,
            slices=found.slices,
            memory_mib=found.profile.memory_mib,
            instances=found.instances,
            placements=placements,
        )


def _partitions(nvml: Nvml, gpu: GpuHandle, profiles: tuple[Profile, ...]) -> Iterator[Partition]:
    for profile in profiles:
        for instance in nvml.gpu_instances(gpu, profile.profile_id):
            placement: Placement = nvml.gpu_instance_info(instance).placement
            filling = nvml.compute_instances(instance, _filling_profile(nvml, instance, profile))
            others = len(list(_compute_instances(nvml, instance))) - len(filling)
            yield Partition(profile_name=profile.name, placement=placement, complete=len(filling) == 1 and not others)


def _compute_instances(nvml: Nvml, instance: GpuInstanceHandle) -> Iterator[ComputeInstanceHandle]:
    asked: set[int] = set()
    for kind in COMPUTE_INSTANCE_PROFILE_KINDS:
        try:
            profile = nvml.compute_instance_profile(instance, kind)
        except (NotSupported, InvalidArgument):
            continue
        if profile.profile_id not in asked:
            asked.add(profile.profile_id)
            yield from nvml.compute_instances(instance, profile.profile_id)


def _filling_profile(nvml: Nvml, instance: GpuInstanceHandle, profile: Profile) -> int:
    """The id of the compute-instance profile that takes all slices of the GPU instance."""
    for kind in COMPUTE_INSTANCE_PROFILE_KINDS:
        try:
            found = nvml.compute_instance_profile(instance, kind)
        except (NotSupported, InvalidArgument):
            continue
        if found.slices == profile.slices:
            return found.profile_id
    raise Broken(f"NVML has no compute instance that fills a {profile.name} ({profile.slices} slices); update the driver")
