"""One simulated GPU with its MIG state machine.

Rules as the hardware has them (NVIDIA MIG user guide): an instance needs free memory slices and enough free compute slices; `+me` profiles
exist once; an instance with contents cannot be destroyed; on Ampere another MIG mode waits for a reset. Raises `NvmlError` by code.
"""

from __future__ import annotations

import itertools
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from gpu_dra.hardware.nvml import FabricInfo, FabricState
from gpu_dra.hardware.nvml_errors import error_for
from gpu_dra.model.gpu import MigMode
from gpu_dra.model.pci import PciAddress

if TYPE_CHECKING:
    from gpu_dra.hardware.simulated import BoardProfile, Machine
    from gpu_dra.model.mig import Placement

INVALID_ARGUMENT: Final = 2
NOT_SUPPORTED: Final = 3
NOT_FOUND: Final = 6
RESET_REQUIRED: Final = 16
IN_USE: Final = 19
INSUFFICIENT_RESOURCES: Final = 23


@dataclass(slots=True, eq=False)
class FakeComputeInstance:
    """A compute instance, and the MIG device that stands for it."""

    id: int
    slices: int
    uuid: str
    in_use: bool = False


@dataclass(slots=True, eq=False)
class FakeGpuInstance:
    """A GPU instance and what is in it."""

    id: int
    board_profile: BoardProfile
    placement: Placement
    compute: dict[int, FakeComputeInstance] = field(default_factory=dict)

    @property
    def free_slices(self) -> int:
        """Compute slices that no compute instance has."""
        return self.board_profile.slices - sum(instance.slices for instance in self.compute.values())


class FakeGpu:
    """State of one GPU."""

    def __init__(self, machine: Machine, index: int, *, seed: str) -> None:
        self.board = machine.board
        self.minor = index
        self.pci = PciAddress(0, machine.buses[index], 0, 0)
        self._namespace = uuid.uuid5(uuid.NAMESPACE_URL, f"{seed}/{machine.name}/{index}")
        self._made = itertools.count()
        self.uuid = f"GPU-{self._namespace}"
        self.mode = MigMode(current=False, pending=False)
        self.instances: dict[int, FakeGpuInstance] = {}
        self.lost = False
        self.recovery_action = 0
        self.fabric = FabricInfo(state=FabricState.NOT_SUPPORTED, status=0, cluster_uuid=uuid.UUID(int=0), clique=0)

    def set_mode(self, *, enabled: bool) -> int | None:
        """Ask for a mode; on Ampere it stays pending until `reset`. Answers the NVML code of what keeps it from being active now."""
        self._need_mig()
        if self.instances and not enabled:
            return IN_USE
        current = self.mode.current if self.board.mig_needs_reset else enabled
        self.mode = MigMode(current=current, pending=enabled)
        return None if current == enabled else RESET_REQUIRED

    def reset(self) -> None:
        """A GPU reset: partitions go, a pending mode takes effect, a lost GPU is back."""
        self.instances.clear()
        self.mode = MigMode(current=self.mode.pending, pending=self.mode.pending)
        self.lost, self.recovery_action = False, 0

    def profile(self, *, kind: int | None = None, profile_id: int | None = None) -> BoardProfile:
        """By enumeration or by id. Raises NotSupported or InvalidArgument."""
        self._need_mig()
        for candidate in self.board.profiles:
            if candidate.kind == kind or candidate.profile.profile_id == profile_id:
                return candidate
        code = NOT_SUPPORTED if profile_id is None else INVALID_ARGUMENT
        raise error_for("nvmlDeviceGetGpuInstanceProfileInfoV", code)

    def create(self, profile_id: int, placement: Placement | None) -> FakeGpuInstance:
        """Cut an instance, at `placement` or at the first that is free."""
        function = "nvmlDeviceCreateGpuInstance" if placement is None else "nvmlDeviceCreateGpuInstanceWithPlacement"
        if not self.mode.current:
            raise error_for(function, NOT_SUPPORTED)
        wanted = self.profile(profile_id=profile_id)
        if placement is not None and placement not in wanted.placements:
            raise error_for(function, INVALID_ARGUMENT)
        for candidate in wanted.placements if placement is None else (placement,):
            if self._has_room(wanted, candidate):
                instance = FakeGpuInstance(self._free_id(), wanted, candidate)
                self.instances[instance.id] = instance
                return instance
        raise error_for(function, INSUFFICIENT_RESOURCES)

    def instance(self, identity: int) -> FakeGpuInstance:
        """Raises NotFound."""
        if identity not in self.instances:
            raise error_for("nvmlDeviceGetGpuInstanceById", NOT_FOUND)
        return self.instances[identity]

    def destroy(self, instance: FakeGpuInstance) -> None:
        """Raises InUse while there is a compute instance, NotFound when it is gone."""
        if self.instances.get(instance.id) is not instance:
            raise error_for("nvmlGpuInstanceDestroy", NOT_FOUND)
        if instance.compute:
            raise error_for("nvmlGpuInstanceDestroy", IN_USE)
        del self.instances[instance.id]

    def create_compute(self, instance: FakeGpuInstance, slices: int) -> FakeComputeInstance:
        """Raises InsufficientResources."""
        if instance.free_slices < slices:
            raise error_for("nvmlGpuInstanceCreateComputeInstance", INSUFFICIENT_RESOURCES)
        identity = next(number for number in itertools.count() if number not in instance.compute)
        name = f"MIG-{uuid.uuid5(self._namespace, str(next(self._made)))}"
        compute = FakeComputeInstance(identity, slices, name)
        instance.compute[identity] = compute
        return compute

    def destroy_compute(self, instance: FakeGpuInstance, compute: FakeComputeInstance) -> None:
        """Raises InUse while a process runs on it, NotFound when it is gone."""
        if instance.compute.get(compute.id) is not compute:
            raise error_for("nvmlComputeInstanceDestroy", NOT_FOUND)
        if compute.in_use:
            raise error_for("nvmlComputeInstanceDestroy", IN_USE)
        del instance.compute[compute.id]

    def mig_devices(self) -> list[tuple[FakeGpuInstance, FakeComputeInstance]]:
        """In the order of NVML's indices."""
        return [(instance, compute) for _, instance in sorted(self.instances.items()) for compute in instance.compute.values()]

    def _has_room(self, wanted: BoardProfile, placement: Placement) -> bool:
        there = self.instances.values()
        same = sum(instance.board_profile is wanted for instance in there)
        used = sum(instance.board_profile.slices for instance in there)
        clear = not any(instance.placement.overlaps(placement) for instance in there)
        return clear and same < wanted.instances and used + wanted.slices <= self.board.compute_slices

    def _free_id(self) -> int:
        return next(number for number in itertools.count(1) if number not in self.instances)

    def _need_mig(self) -> None:
        if not self.board.profiles:
            raise error_for("nvmlDeviceGetMigMode", NOT_SUPPORTED)
