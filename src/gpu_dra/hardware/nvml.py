"""What we ask of the NVIDIA management library.

Source: `nvml.h` and the NVML reference manual. One method is one question; nothing is cached and no name is made up. Two
implementations: `pynvml_adapter` over the driver's library and `fake` in this process; both pass `tests/contract/test_nvml.py`. Every
method blocks and may hang with a sick GPU: call it through `worker`. Every method raises `nvml_errors.NvmlError`.
Events, sharing modes and processes are not here yet; time slices are not in NVML at all.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Final, Protocol
from uuid import UUID

from gpu_dra.model.mig import MigProfile, Placement

if TYPE_CHECKING:
    from gpu_dra.model.gpu import MigMode
    from gpu_dra.model.pci import PciAddress

GPU_INSTANCE_PROFILE_KINDS: Final = range(0x12)
"""Values of the profile enumeration (`NVML_GPU_INSTANCE_PROFILE_*`); a board supports some of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuHandle:
    """A GPU, or a MIG device of it. Opaque; valid until `close`."""

    gpu_index: int
    """NVML index of the physical GPU, so that a call that hangs can be blamed on it."""
    native: object


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuInstanceHandle:
    """A GPU instance. Opaque; valid until it is destroyed."""

    gpu_index: int
    native: object


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputeInstanceHandle:
    """A compute instance. Opaque; valid until it is destroyed."""

    gpu_index: int
    native: object


class FabricState(IntEnum):
    """How far the GPU's registration with the NVLink fabric is (`NVML_GPU_FABRIC_STATE_*`)."""

    NOT_SUPPORTED = 0
    NOT_STARTED = 1
    IN_PROGRESS = 2
    COMPLETED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class FabricInfo:
    """NVLink fabric registration as NVML reports it."""

    state: int
    """A `FabricState`."""
    status: int
    """NVML return code of the registration; 0 is success and means something only once `state` is COMPLETED."""
    cluster_uuid: UUID
    clique: int


class RecoveryAction(IntEnum):
    """What the driver wants done to make the GPU well (`NVML_GPU_RECOVERY_ACTION_*`)."""

    NONE = 0
    GPU_RESET = 1
    NODE_REBOOT = 2
    DRAIN_P2P = 3
    DRAIN_AND_RESET = 4
    RECOVER_IMEX_DOMAIN = 5
    BUS_RESET = 6
    SYSTEM_REBOOT = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class MigModeChange:
    """What became of a request to change MIG mode."""

    mode: MigMode
    """As it is now. On Ampere the change stays pending until the GPU is reset."""
    blocked_by: int | None
    """NVML return code that says why the mode could not be activated at once; None when it was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuInstanceProfile:
    """A way to cut a GPU."""

    kind: int
    """Value of the enumeration it was asked by; not the same number as the profile's id."""
    slices: int
    """Compute slices of an instance."""
    instances: int
    """How many instances the board can have at most."""
    profile: MigProfile


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputeInstanceProfile:
    """A way to cut a GPU instance."""

    kind: int
    profile_id: int
    slices: int
    instances: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuInstanceInfo:
    """An existing GPU instance."""

    id: int
    profile_id: int
    placement: Placement


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputeInstanceInfo:
    """An existing compute instance."""

    id: int
    profile_id: int
    device: GpuHandle
    """The MIG device: the shortest way to the UUID of an instance that was just created."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MigDeviceInfo:
    """Which instances a MIG device stands for and how many compute slices each has."""

    gpu_instance_id: int
    compute_instance_id: int
    gpu_instance_slices: int
    compute_instance_slices: int

    @property
    def fills_its_gpu_instance(self) -> bool:
        """False for a compute instance that leaves room for another one beside it."""
        return self.compute_instance_slices == self.gpu_instance_slices


class Nvml(Protocol):
    """What we ask of NVML. Blocking; raises `NvmlError`; a handle of one session is of no use in the next."""

    def open(self) -> None:
        """Load the driver's library as it lies there now and begin a session; a node without GPUs is no error."""
        ...

    def close(self) -> None:
        """End the session and let go of the library, so that the driver can be exchanged. Never fails; closing twice is nothing."""
        ...

    def is_superseded(self) -> bool:
        """True when another library file than the one in use lies there now: the driver package was exchanged under us."""
        ...

    def driver_version(self) -> str:
        """Version of the kernel driver (`580.126.09`)."""
        ...

    def cuda_driver_version(self) -> tuple[int, int]:
        """Highest CUDA version of the driver, (13, 0)."""
        ...

    def gpu_count(self) -> int:
        """GPUs of this session; one that comes later needs a new session."""
        ...

    def gpu(self, index: int) -> GpuHandle:
        """The GPU at an index below `gpu_count`."""
        ...

    def uuid(self, device: GpuHandle) -> str:
        """UUID of a GPU (`GPU-…`) or of a MIG device (`MIG-…`)."""
        ...

    def pci(self, gpu: GpuHandle) -> PciAddress:
        """Where the GPU sits."""
        ...

    def minor(self, gpu: GpuHandle) -> int:
        """Number of its device node, `/dev/nvidia<minor>`; may differ from the index."""
        ...

    def name(self, gpu: GpuHandle) -> str:
        """Product name, `NVIDIA H100 80GB HBM3`."""
        ...

    def brand(self, gpu: GpuHandle) -> int:
        """`nvmlBrandType_t`; `names.BRANDS` spells it."""
        ...

    def architecture(self, gpu: GpuHandle) -> int:
        """`nvmlDeviceArchitecture_t`; `names.ARCHITECTURES` spells it."""
        ...

    def cuda_compute_capability(self, gpu: GpuHandle) -> tuple[int, int]:
        """Major and minor."""
        ...

    def memory_bytes(self, gpu: GpuHandle) -> int:
        """The whole of the memory, what the driver keeps for itself included."""
        ...

    def addressing_mode(self, gpu: GpuHandle) -> int:
        """`nvmlDeviceAddressingMode_t`; `names.ADDRESSING_MODES` spells it."""
        ...

    def fabric(self, gpu: GpuHandle) -> FabricInfo:
        """NVLink fabric registration."""
        ...

    def recovery_action(self, gpu: GpuHandle) -> int:
        """What the driver wants done, a `RecoveryAction`."""
        ...

    def mig_mode(self, gpu: GpuHandle) -> MigMode:
        """MIG mode now and after the next reset; NotSupported where the GPU cannot do MIG."""
        ...

    def set_mig_mode(self, gpu: GpuHandle, *, enabled: bool) -> MigModeChange:
        """Ask for another MIG mode. Needs CAP_SYS_ADMIN and a GPU that nobody uses."""
        ...

    def gpu_instance_profile(self, gpu: GpuHandle, kind: int) -> GpuInstanceProfile:
        """The board's profile of a kind; NotSupported or InvalidArgument where it has none."""
        ...

    def possible_placements(self, gpu: GpuHandle, profile_id: int) -> tuple[Placement, ...]:
        """Where instances of a profile can ever sit, occupied or not."""
        ...

    def create_gpu_instance(self, gpu: GpuHandle, profile_id: int, placement: Placement | None) -> GpuInstanceHandle:
        """Cut a GPU instance, at `placement` or where NVML likes; InsufficientResources when there is no room."""
        ...

    def gpu_instances(self, gpu: GpuHandle, profile_id: int) -> tuple[GpuInstanceHandle, ...]:
        """Existing GPU instances of a profile."""
        ...

    def gpu_instance_by_id(self, gpu: GpuHandle, instance_id: int) -> GpuInstanceHandle:
        """An existing GPU instance; NotFound when there is none with the id."""
        ...

    def gpu_instance_info(self, instance: GpuInstanceHandle) -> GpuInstanceInfo:
        """What a GPU instance is."""
        ...

    def destroy_gpu_instance(self, instance: GpuInstanceHandle) -> None:
        """Give a GPU instance back, about 1 s; InUse while it has compute instances."""
        ...

    def compute_instance_profile(self, instance: GpuInstanceHandle, kind: int) -> ComputeInstanceProfile:
        """The GPU instance's profile of a kind; NotSupported or InvalidArgument where it has none."""
        ...

    def create_compute_instance(self, instance: GpuInstanceHandle, profile_id: int) -> ComputeInstanceHandle:
        """Cut a compute instance; InsufficientResources when there is no room."""
        ...

    def compute_instances(self, instance: GpuInstanceHandle, profile_id: int) -> tuple[ComputeInstanceHandle, ...]:
        """Existing compute instances of a profile."""
        ...

    def compute_instance_info(self, instance: ComputeInstanceHandle) -> ComputeInstanceInfo:
        """What a compute instance is, with the MIG device it makes."""
        ...

    def destroy_compute_instance(self, instance: ComputeInstanceHandle) -> None:
        """Give a compute instance back; InUse while a process runs on it."""
        ...

    def most_mig_devices(self, gpu: GpuHandle) -> int:
        """How many MIG devices the GPU can have; 0 where it cannot do MIG."""
        ...

    def mig_device(self, gpu: GpuHandle, index: int) -> GpuHandle:
        """The MIG device at an index below `most_mig_devices`; NotFound at an index without one, and there may be gaps."""
        ...

    def mig_device_info(self, device: GpuHandle) -> MigDeviceInfo:
        """Which instances a MIG device stands for."""
        ...
