"""NVML without a driver: the second implementation of `Nvml`, for `--simulate` and for tests.

Holds to the contract of `tests/contract/test_nvml.py`. Faults can be ordered at run time: any method, any code, any GPU, after some calls;
a hang that lasts until it is released; a lost GPU.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, TypeVar, cast

from gpu_dra.hardware.fake_gpu import INSUFFICIENT_RESOURCES, INVALID_ARGUMENT, NOT_FOUND, NOT_SUPPORTED, FakeGpu
from gpu_dra.hardware.nvml import (
    ComputeInstanceHandle,
    ComputeInstanceInfo,
    ComputeInstanceProfile,
    FabricInfo,
    GpuHandle,
    GpuInstanceHandle,
    GpuInstanceInfo,
    GpuInstanceProfile,
    MigDeviceInfo,
    MigModeChange,
)
from gpu_dra.hardware.nvml_errors import error_for
from gpu_dra.model.gpu import MigMode

if TYPE_CHECKING:
    from gpu_dra.hardware.fake_gpu import FakeComputeInstance, FakeGpuInstance
    from gpu_dra.hardware.simulated import Machine
    from gpu_dra.model.mig import Placement
    from gpu_dra.model.pci import PciAddress

_UNINITIALIZED: Final = 1
_GPU_LOST: Final = 15
_COMPUTE_SLICES: Final = {0: 1, 1: 2, 2: 3, 3: 4, 4: 7}
"""Compute-instance profile kinds; their ids are the same numbers."""

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


@dataclass(slots=True, eq=False)
class Fault:
    """An ordered failure. `code` 0 with `hang` set only delays; `times` None means until it is cleared."""

    method: str
    code: int = 0
    gpu: int | None = None
    after: int = 0
    times: int | None = None
    hang: threading.Event | None = None

    def strikes(self, method: str, gpu: int | None) -> bool:
        """Whether it applies to the call, counting it."""
        if method != self.method or (self.gpu is not None and gpu != self.gpu):
            return False
        if self.after > 0:
            self.after -= 1
            return False
        if self.times is not None:
            self.times -= 1
            return self.times >= 0
        return True


def _method(
    function: Callable[Concatenate[FakeNvml, Arguments], Result],
) -> Callable[Concatenate[FakeNvml, Arguments], Result]:
    """A method that needs a session and meets the ordered faults first."""

    def call(self: FakeNvml, /, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        first: Any = args[0] if args else None
        gpu = first if function.__name__ == "gpu" else getattr(first, "gpu_index", None)
        self._meet_faults(function.__name__, gpu)
        return function(self, *args, **kwargs)

    call.__doc__ = function.__doc__
    return call


class FakeNvml:
    """See `Nvml` for what each method answers."""

    def __init__(self, machine: Machine, *, seed: str = "") -> None:
        self.machine = machine
        self.gpus = [FakeGpu(machine, index, seed=seed) for index in range(len(machine.buses))]
        self.faults: list[Fault] = []
        self.driver = machine.driver_version
        self._session = False

    def order(self, fault: Fault) -> Fault:
        """From now on fail as ordered."""
        self.faults.append(fault)
        return fault

    def clear(self) -> None:
        """Forget every ordered fault and release what hangs."""
        for fault in self.faults:
            if fault.hang is not None:
                fault.hang.set()
        self.faults.clear()

    def open(self) -> None:
        """Begin a session."""
        self._strike("open", None)
        self._session = True

    def close(self) -> None:
        """End it."""
        self._session = False

    def is_superseded(self) -> bool:
        """There is no library file that could be exchanged."""
        return False

    @_method
    def driver_version(self) -> str:
        """Of the simulated machine."""
        return self.driver

    @_method
    def cuda_driver_version(self) -> tuple[int, int]:
        """Of the simulated machine."""
        return self.machine.cuda_driver_version

    @_method
    def gpu_count(self) -> int:
        """GPUs of the machine."""
        return len(self.gpus)

    @_method
    def gpu(self, index: int) -> GpuHandle:
        """The GPU at an index."""
        if not 0 <= index < len(self.gpus):
            raise error_for("nvmlDeviceGetHandleByIndex_v2", INVALID_ARGUMENT)
        return GpuHandle(gpu_index=index, native=self.gpus[index])

    @_method
    def uuid(self, device: GpuHandle) -> str:
        """Of a GPU or a MIG device."""
        native = device.native
        return native.uuid if isinstance(native, FakeGpu) else cast("tuple[FakeGpuInstance, FakeComputeInstance]", native)[1].uuid

    @_method
    def pci(self, gpu: GpuHandle) -> PciAddress:
        """PCI address."""
        return self._of(gpu).pci

    @_method
    def minor(self, gpu: GpuHandle) -> int:
        """Device minor."""
        return self._of(gpu).minor

    @_method
    def name(self, gpu: GpuHandle) -> str:
        """Product name."""
        return self._of(gpu).board.name

    @_method
    def brand(self, gpu: GpuHandle) -> int:
        """Brand number."""
        return self._of(gpu).board.brand

    @_method
    def architecture(self, gpu: GpuHandle) -> int:
        """Architecture number."""
        return self._of(gpu).board.architecture

    @_method
    def cuda_compute_capability(self, gpu: GpuHandle) -> tuple[int, int]:
        """Major and minor."""
        return self._of(gpu).board.compute_capability

    @_method
    def memory_bytes(self, gpu: GpuHandle) -> int:
        """All of it."""
        return self._of(gpu).board.memory_mib << 20

    @_method
    def addressing_mode(self, gpu: GpuHandle) -> int:
        """Addressing mode number."""
        mode = self._of(gpu).board.addressing_mode
        if mode is None:
            raise error_for("nvmlDeviceGetAddressingMode", NOT_SUPPORTED)
        return mode

    @_method
    def fabric(self, gpu: GpuHandle) -> FabricInfo:
        """As set on the fake GPU; no simulated machine has a fabric."""
        return self._of(gpu).fabric

    @_method
    def recovery_action(self, gpu: GpuHandle) -> int:
        """As set on the fake GPU."""
        return self._of(gpu).recovery_action

    @_method
    def mig_mode(self, gpu: GpuHandle) -> MigMode:
        """Now and after the next reset."""
        if not self._of(gpu).board.profiles:
            raise error_for("nvmlDeviceGetMigMode", NOT_SUPPORTED)
        return self._of(gpu).mode

    @_method
    def set_mig_mode(self, gpu: GpuHandle, *, enabled: bool) -> MigModeChange:
        """Ask for another mode."""
        blocked_by = self._of(gpu).set_mode(enabled=enabled)
        return MigModeChange(mode=self._of(gpu).mode, blocked_by=blocked_by)

    @_method
    def gpu_instance_profile(self, gpu: GpuHandle, kind: int) -> GpuInstanceProfile:
        """By enumeration."""
        found = self._of(gpu).profile(kind=kind)
        return GpuInstanceProfile(kind=kind, slices=found.slices, instances=found.instances, profile=found.profile)

    @_method
    def possible_placements(self, gpu: GpuHandle, profile_id: int) -> tuple[Placement, ...]:
        """Occupied or not."""
        return self._of(gpu).profile(profile_id=profile_id).placements

    @_method
    def create_gpu_instance(self, gpu: GpuHandle, profile_id: int, placement: Placement | None) -> GpuInstanceHandle:
        """Cut an instance."""
        return GpuInstanceHandle(gpu_index=gpu.gpu_index, native=self._of(gpu).create(profile_id, placement))

    @_method
    def gpu_instances(self, gpu: GpuHandle, profile_id: int) -> tuple[GpuInstanceHandle, ...]:
        """Of one profile."""
        instances = self._of(gpu).instances.values()
        return tuple(
            GpuInstanceHandle(gpu_index=gpu.gpu_index, native=instance)
            for instance in instances
            if instance.board_profile.profile.profile_id == profile_id
        )

    @_method
    def gpu_instance_by_id(self, gpu: GpuHandle, instance_id: int) -> GpuInstanceHandle:
        """Raises NotFound."""
        return GpuInstanceHandle(gpu_index=gpu.gpu_index, native=self._of(gpu).instance(instance_id))

    @_method
    def gpu_instance_info(self, instance: GpuInstanceHandle) -> GpuInstanceInfo:
        """Id, profile and placement."""
        native = _instance(instance)
        return GpuInstanceInfo(id=native.id, profile_id=native.board_profile.profile.profile_id, placement=native.placement)

    @_method
    def destroy_gpu_instance(self, instance: GpuInstanceHandle) -> None:
        """Raises InUse."""
        self.gpus[instance.gpu_index].destroy(_instance(instance))

    @_method
    def compute_instance_profile(self, instance: GpuInstanceHandle, kind: int) -> ComputeInstanceProfile:
        """By enumeration; only what fits into the GPU instance."""
        slices = _COMPUTE_SLICES.get(kind, 0)
        whole = _instance(instance).board_profile.slices
        if not slices or slices > whole:
            raise error_for("nvmlGpuInstanceGetComputeInstanceProfileInfoV", NOT_SUPPORTED)
        return ComputeInstanceProfile(kind=kind, profile_id=kind, slices=slices, instances=whole // slices)

    @_method
    def create_compute_instance(self, instance: GpuInstanceHandle, profile_id: int) -> ComputeInstanceHandle:
        """Cut a compute instance."""
        native = _instance(instance)
        if profile_id not in _COMPUTE_SLICES:
            raise error_for("nvmlGpuInstanceCreateComputeInstance", INVALID_ARGUMENT)
        if _COMPUTE_SLICES[profile_id] > native.board_profile.slices:
            raise error_for("nvmlGpuInstanceCreateComputeInstance", INSUFFICIENT_RESOURCES)
        compute = self.gpus[instance.gpu_index].create_compute(native, _COMPUTE_SLICES[profile_id])
        return ComputeInstanceHandle(gpu_index=instance.gpu_index, native=(native, compute))

    @_method
    def compute_instances(self, instance: GpuInstanceHandle, profile_id: int) -> tuple[ComputeInstanceHandle, ...]:
        """Of one profile."""
        native = _instance(instance)
        return tuple(
            ComputeInstanceHandle(gpu_index=instance.gpu_index, native=(native, compute))
            for compute in native.compute.values()
            if compute.slices == _COMPUTE_SLICES.get(profile_id)
        )

    @_method
    def compute_instance_info(self, instance: ComputeInstanceHandle) -> ComputeInstanceInfo:
        """With the MIG device."""
        _, compute = _pair(instance)
        kind = next(kind for kind, slices in _COMPUTE_SLICES.items() if slices == compute.slices)
        device = GpuHandle(gpu_index=instance.gpu_index, native=instance.native)
        return ComputeInstanceInfo(id=compute.id, profile_id=kind, device=device)

    @_method
    def destroy_compute_instance(self, instance: ComputeInstanceHandle) -> None:
        """Raises InUse."""
        self.gpus[instance.gpu_index].destroy_compute(*_pair(instance))

    @_method
    def most_mig_devices(self, gpu: GpuHandle) -> int:
        """As many as the board has compute slices."""
        return self._of(gpu).board.compute_slices

    @_method
    def mig_device(self, gpu: GpuHandle, index: int) -> GpuHandle:
        """Raises NotFound at an index without one."""
        devices = self._of(gpu).mig_devices()
        if index >= len(devices):
            raise error_for("nvmlDeviceGetMigDeviceHandleByIndex", NOT_FOUND)
        return GpuHandle(gpu_index=gpu.gpu_index, native=devices[index])

    @_method
    def mig_device_info(self, device: GpuHandle) -> MigDeviceInfo:
        """Which instances it stands for."""
        instance, compute = cast("tuple[FakeGpuInstance, FakeComputeInstance]", device.native)
        return MigDeviceInfo(
            gpu_instance_id=instance.id,
            compute_instance_id=compute.id,
            gpu_instance_slices=instance.board_profile.slices,
            compute_instance_slices=compute.slices,
        )

    def _of(self, gpu: GpuHandle) -> FakeGpu:
        return self.gpus[gpu.gpu_index]

    def _meet_faults(self, method: str, gpu: int | None) -> None:
        if not self._session:
            raise error_for(method, _UNINITIALIZED)
        if isinstance(gpu, int) and 0 <= gpu < len(self.gpus) and self.gpus[gpu].lost:
            raise error_for(method, _GPU_LOST)
        self._strike(method, gpu)

    def _strike(self, method: str, gpu: int | None) -> None:
        for fault in self.faults:
            if fault.strikes(method, gpu):
                if fault.hang is not None:
                    fault.hang.wait()
                if fault.code:
                    raise error_for(method, fault.code)


def _instance(handle: GpuInstanceHandle) -> FakeGpuInstance:
    return cast("FakeGpuInstance", handle.native)


def _pair(handle: ComputeInstanceHandle) -> tuple[FakeGpuInstance, FakeComputeInstance]:
    return cast("tuple[FakeGpuInstance, FakeComputeInstance]", handle.native)
