"""Ask the driver's own library: the one file that imports `pynvml`.

Importing needs no driver. `pynvml` keeps the library, its use count and the function pointers in module globals and never lets go of
them, and it looks for the library by its bare name only; `_load` and `_unload` are the one place that handles these globals, for two
reasons: the library lies below a driver root, and after a driver upgrade the next session must use the new file (pointers into the
old one would talk to a kernel module that is gone). Hence there can be one open adapter in a process.
Struct versions are pynvml's defaults. Foreign exceptions become ours in `_asking`.
"""

from __future__ import annotations

import contextlib
import ctypes
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import pynvml

from gpu_dra.core.errors import NotReady
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
from gpu_dra.hardware.nvml_errors import LibraryNotFound, NvmlError, VersionMismatch, error_for
from gpu_dra.model.gpu import MigMode
from gpu_dra.model.mig import MigProfile, Placement
from gpu_dra.model.pci import PciAddress

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

_ENGINES_SHARED: Final = 0
"""`NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED`, the only one there is."""
_RECOVERY_ACTION_FIELD: Final = 230
"""`NVML_FI_DEV_GET_GPU_RECOVERY_ACTION`."""
_LIBRARY_NOT_FOUND: Final = 12
_UNKNOWN: Final = 999


class PynvmlAdapter:
    """NVML through `nvidia-ml-py`."""

    def __init__(self, find_library: Callable[[], Path]) -> None:
        self._find_library = find_library
        """Where `libnvidia-ml.so.1` is now; raises NotReady with the reason when it is nowhere."""
        self._library: Path | None = None
        self._identity: tuple[int, int] | None = None

    def open(self) -> None:
        """Load the library found now and begin a session."""
        self.close()
        path = self._locate()
        _load(path)
        try:
            with _asking("nvmlInitWithFlags"):
                pynvml.nvmlInitWithFlags(pynvml.NVML_INIT_FLAG_NO_GPUS)
        except VersionMismatch as error:
            _unload()
            raise VersionMismatch(error.function, error.code, f"{error.text}; the library is {path}") from error
        except NvmlError:
            _unload()
            raise
        self._library, self._identity = path, _identity(path)

    def close(self) -> None:
        """End the session and let go of the library."""
        if self._library is None:
            return
        self._library = None
        with contextlib.suppress(NvmlError), _asking("nvmlShutdown"):  # the driver may be gone already, and so is the session then
            pynvml.nvmlShutdown()
        _unload()

    def is_superseded(self) -> bool:
        """True when `find_library` finds another file than the one in use, or none."""
        try:
            found = self._locate()
            return self._library is not None and (found != self._library or _identity(found) != self._identity)
        except LibraryNotFound:
            return True

    def driver_version(self) -> str:
        """Version of the kernel driver."""
        with _asking("nvmlSystemGetDriverVersion"):
            return str(pynvml.nvmlSystemGetDriverVersion())

    def cuda_driver_version(self) -> tuple[int, int]:
        """NVML prints 13000 for 13.0 and 12080 for 12.8."""
        with _asking("nvmlSystemGetCudaDriverVersion_v2"):
            version: int = pynvml.nvmlSystemGetCudaDriverVersion_v2()
            return version // 1000, version % 1000 // 10

    def gpu_count(self) -> int:
        """GPUs of this session."""
        with _asking("nvmlDeviceGetCount_v2"):
            return int(pynvml.nvmlDeviceGetCount())

    def gpu(self, index: int) -> GpuHandle:
        """The GPU at an index."""
        with _asking("nvmlDeviceGetHandleByIndex_v2"):
            return GpuHandle(gpu_index=index, native=pynvml.nvmlDeviceGetHandleByIndex(index))

    def uuid(self, device: GpuHandle) -> str:
        """UUID of a GPU or of a MIG device."""
        with _asking("nvmlDeviceGetUUID"):
            return str(pynvml.nvmlDeviceGetUUID(device.native))

    def pci(self, gpu: GpuHandle) -> PciAddress:
        """NVML has no function number: a GPU is function 0."""
        with _asking("nvmlDeviceGetPciInfo_v3"):
            info = pynvml.nvmlDeviceGetPciInfo(gpu.native)
            return PciAddress(info.domain, info.bus, info.device, 0)

    def minor(self, gpu: GpuHandle) -> int:
        """Number of its device node."""
        with _asking("nvmlDeviceGetMinorNumber"):
            return int(pynvml.nvmlDeviceGetMinorNumber(gpu.native))

    def name(self, gpu: GpuHandle) -> str:
        """Product name."""
        with _asking("nvmlDeviceGetName"):
            return str(pynvml.nvmlDeviceGetName(gpu.native))

    def brand(self, gpu: GpuHandle) -> int:
        """`nvmlBrandType_t`."""
        with _asking("nvmlDeviceGetBrand"):
            return int(pynvml.nvmlDeviceGetBrand(gpu.native))

    def architecture(self, gpu: GpuHandle) -> int:
        """`nvmlDeviceArchitecture_t`."""
        with _asking("nvmlDeviceGetArchitecture"):
            return int(pynvml.nvmlDeviceGetArchitecture(gpu.native))

    def cuda_compute_capability(self, gpu: GpuHandle) -> tuple[int, int]:
        """Major and minor."""
        with _asking("nvmlDeviceGetCudaComputeCapability"):
            major, minor = pynvml.nvmlDeviceGetCudaComputeCapability(gpu.native)
            return int(major), int(minor)

    def memory_bytes(self, gpu: GpuHandle) -> int:
        """The whole of the memory."""
        with _asking("nvmlDeviceGetMemoryInfo"):
            return int(pynvml.nvmlDeviceGetMemoryInfo(gpu.native).total)

    def addressing_mode(self, gpu: GpuHandle) -> int:
        """`nvmlDeviceAddressingMode_t`."""
        with _asking("nvmlDeviceGetAddressingMode"):
            return int(pynvml.nvmlDeviceGetAddressingMode(gpu.native))

    def fabric(self, gpu: GpuHandle) -> FabricInfo:
        """NVLink fabric registration."""
        info = pynvml.c_nvmlGpuFabricInfoV_t()
        with _asking("nvmlDeviceGetGpuFabricInfoV"):
            pynvml.nvmlDeviceGetGpuFabricInfoV(gpu.native, ctypes.byref(info))
        cluster_uuid = UUID(bytes=bytes(info.clusterUuid))
        return FabricInfo(state=info.state, status=info.status, cluster_uuid=cluster_uuid, clique=info.cliqueId)

    def recovery_action(self, gpu: GpuHandle) -> int:
        """A field value, which has a return code of its own."""
        function = "nvmlDeviceGetFieldValues"
        with _asking(function):
            (field,) = pynvml.nvmlDeviceGetFieldValues(gpu.native, [_RECOVERY_ACTION_FIELD])
        if field.nvmlReturn != pynvml.NVML_SUCCESS:
            raise error_for(function, field.nvmlReturn)
        return int(field.value.uiVal)

    def mig_mode(self, gpu: GpuHandle) -> MigMode:
        """MIG mode now and after the next reset."""
        with _asking("nvmlDeviceGetMigMode"):
            current, pending = pynvml.nvmlDeviceGetMigMode(gpu.native)
            return MigMode(current=bool(current), pending=bool(pending))

    def set_mig_mode(self, gpu: GpuHandle, *, enabled: bool) -> MigModeChange:
        """Ask for another MIG mode; pynvml returns the activation status and does not raise for it."""
        with _asking("nvmlDeviceSetMigMode"):
            status = pynvml.nvmlDeviceSetMigMode(gpu.native, int(enabled))
        return MigModeChange(mode=self.mig_mode(gpu), blocked_by=status or None)

    def gpu_instance_profile(self, gpu: GpuHandle, kind: int) -> GpuInstanceProfile:
        """The board's profile of a kind."""
        with _asking("nvmlDeviceGetGpuInstanceProfileInfoV"):
            info = pynvml.nvmlDeviceGetGpuInstanceProfileInfo(gpu.native, kind)
        profile = MigProfile(
            name=info.name.removeprefix("MIG "),
            profile_id=info.id,
            multiprocessors=info.multiprocessorCount,
            copy_engines=info.copyEngineCount,
            decoders=info.decoderCount,
            encoders=info.encoderCount,
            jpeg_engines=info.jpegCount,
            ofa_engines=info.ofaCount,
            memory_mib=info.memorySizeMB,
        )
        return GpuInstanceProfile(kind=kind, slices=info.sliceCount, instances=info.instanceCount, profile=profile)

    def possible_placements(self, gpu: GpuHandle, profile_id: int) -> tuple[Placement, ...]:
        """NVML is asked twice: how many, then which."""
        with _asking("nvmlDeviceGetGpuInstancePossiblePlacements_v2"):
            count = ctypes.c_uint()
            pynvml.nvmlDeviceGetGpuInstancePossiblePlacements(gpu.native, profile_id, None, ctypes.byref(count))
            found = (pynvml.c_nvmlGpuInstancePlacement_t * count.value)()
            pynvml.nvmlDeviceGetGpuInstancePossiblePlacements(gpu.native, profile_id, found, ctypes.byref(count))
        return tuple(Placement(start=placement.start, size=placement.size) for placement in found[: count.value])

    def create_gpu_instance(self, gpu: GpuHandle, profile_id: int, placement: Placement | None) -> GpuInstanceHandle:
        """Cut a GPU instance."""
        if placement is None:
            with _asking("nvmlDeviceCreateGpuInstance"):
                native = pynvml.nvmlDeviceCreateGpuInstance(gpu.native, profile_id)
        else:
            where = pynvml.c_nvmlGpuInstancePlacement_t(placement.start, placement.size)
            with _asking("nvmlDeviceCreateGpuInstanceWithPlacement"):
                native = pynvml.nvmlDeviceCreateGpuInstanceWithPlacement(gpu.native, profile_id, ctypes.byref(where))
        return GpuInstanceHandle(gpu_index=gpu.gpu_index, native=native)

    def gpu_instances(self, gpu: GpuHandle, profile_id: int) -> tuple[GpuInstanceHandle, ...]:
        """Existing GPU instances of a profile; never more than the board has memory slices."""
        found = (pynvml.c_nvmlGpuInstance_t * _MOST_INSTANCES)()
        count = ctypes.c_uint(_MOST_INSTANCES)
        with _asking("nvmlDeviceGetGpuInstances"):
            pynvml.nvmlDeviceGetGpuInstances(gpu.native, profile_id, found, ctypes.byref(count))
        return tuple(GpuInstanceHandle(gpu_index=gpu.gpu_index, native=native) for native in found[: count.value])

    def gpu_instance_by_id(self, gpu: GpuHandle, instance_id: int) -> GpuInstanceHandle:
        """An existing GPU instance."""
        with _asking("nvmlDeviceGetGpuInstanceById"):
            return GpuInstanceHandle(gpu_index=gpu.gpu_index, native=pynvml.nvmlDeviceGetGpuInstanceById(gpu.native, instance_id))

    def gpu_instance_info(self, instance: GpuInstanceHandle) -> GpuInstanceInfo:
        """What a GPU instance is."""
        with _asking("nvmlGpuInstanceGetInfo"):
            info = pynvml.nvmlGpuInstanceGetInfo(instance.native)
        placement = Placement(start=info.placement.start, size=info.placement.size)
        return GpuInstanceInfo(id=info.id, profile_id=info.profileId, placement=placement)

    def destroy_gpu_instance(self, instance: GpuInstanceHandle) -> None:
        """Give a GPU instance back."""
        with _asking("nvmlGpuInstanceDestroy"):
            pynvml.nvmlGpuInstanceDestroy(instance.native)

    def compute_instance_profile(self, instance: GpuInstanceHandle, kind: int) -> ComputeInstanceProfile:
        """The GPU instance's profile of a kind."""
        with _asking("nvmlGpuInstanceGetComputeInstanceProfileInfoV"):
            info = pynvml.nvmlGpuInstanceGetComputeInstanceProfileInfo(instance.native, kind, _ENGINES_SHARED)
        return ComputeInstanceProfile(kind=kind, profile_id=info.id, slices=info.sliceCount, instances=info.instanceCount)

    def create_compute_instance(self, instance: GpuInstanceHandle, profile_id: int) -> ComputeInstanceHandle:
        """Cut a compute instance."""
        with _asking("nvmlGpuInstanceCreateComputeInstance"):
            native = pynvml.nvmlGpuInstanceCreateComputeInstance(instance.native, profile_id)
        return ComputeInstanceHandle(gpu_index=instance.gpu_index, native=native)

    def compute_instances(self, instance: GpuInstanceHandle, profile_id: int) -> tuple[ComputeInstanceHandle, ...]:
        """Existing compute instances of a profile."""
        found = (pynvml.c_nvmlComputeInstance_t * _MOST_INSTANCES)()
        count = ctypes.c_uint(_MOST_INSTANCES)
        with _asking("nvmlGpuInstanceGetComputeInstances"):
            pynvml.nvmlGpuInstanceGetComputeInstances(instance.native, profile_id, found, ctypes.byref(count))
        return tuple(ComputeInstanceHandle(gpu_index=instance.gpu_index, native=native) for native in found[: count.value])

    def compute_instance_info(self, instance: ComputeInstanceHandle) -> ComputeInstanceInfo:
        """What a compute instance is."""
        with _asking("nvmlComputeInstanceGetInfo_v2"):
            info = pynvml.nvmlComputeInstanceGetInfo(instance.native)
        device = GpuHandle(gpu_index=instance.gpu_index, native=info.device)
        return ComputeInstanceInfo(id=info.id, profile_id=info.profileId, device=device)

    def destroy_compute_instance(self, instance: ComputeInstanceHandle) -> None:
        """Give a compute instance back."""
        with _asking("nvmlComputeInstanceDestroy"):
            pynvml.nvmlComputeInstanceDestroy(instance.native)

    def most_mig_devices(self, gpu: GpuHandle) -> int:
        """How many MIG devices the GPU can have."""
        with _asking("nvmlDeviceGetMaxMigDeviceCount"):
            return int(pynvml.nvmlDeviceGetMaxMigDeviceCount(gpu.native))

    def mig_device(self, gpu: GpuHandle, index: int) -> GpuHandle:
        """The MIG device at an index."""
        with _asking("nvmlDeviceGetMigDeviceHandleByIndex"):
            return GpuHandle(gpu_index=gpu.gpu_index, native=pynvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu.native, index))

    def mig_device_info(self, device: GpuHandle) -> MigDeviceInfo:
        """Three questions to NVML, which keeps ids and sizes apart."""
        with _asking("nvmlDeviceGetGpuInstanceId"):
            gpu_instance_id = pynvml.nvmlDeviceGetGpuInstanceId(device.native)
        with _asking("nvmlDeviceGetComputeInstanceId"):
            compute_instance_id = pynvml.nvmlDeviceGetComputeInstanceId(device.native)
        with _asking("nvmlDeviceGetAttributes_v2"):
            attributes = pynvml.nvmlDeviceGetAttributes(device.native)
        return MigDeviceInfo(
            gpu_instance_id=gpu_instance_id,
            compute_instance_id=compute_instance_id,
            gpu_instance_slices=attributes.gpuInstanceSliceCount,
            compute_instance_slices=attributes.computeInstanceSliceCount,
        )

    def _locate(self) -> Path:
        try:
            return self._find_library()
        except NotReady as error:
            raise LibraryNotFound("dlopen", _LIBRARY_NOT_FOUND, str(error)) from error


_MOST_INSTANCES: Final = 8
"""Memory slices of the largest GPUs, hence the most instances of one profile."""


@contextlib.contextmanager
def _asking(function: str) -> Iterator[None]:
    """Turn what pynvml raises into ours; the one place that does."""
    try:
        yield
    except pynvml.NVMLError as error:
        raise error_for(function, error.value) from error
    except ValueError as error:  # a text of NVML that is no UTF-8, an address of another shape
        raise NvmlError(function, _UNKNOWN, f"an answer that cannot be read: {error}") from error


def _identity(path: Path) -> tuple[int, int] | None:
    """Which file it is: a driver container that is exchanged brings another one under the same name."""
    try:
        state = path.stat()
    except OSError:
        return None
    return state.st_dev, state.st_ino


def _load(path: Path) -> None:
    """Give pynvml the library at `path`, so that it does not look for one by name."""
    try:
        library = ctypes.CDLL(str(path), ctypes.RTLD_LOCAL)  # local: two driver versions must not answer for each other
    except OSError as error:
        raise LibraryNotFound("dlopen", _LIBRARY_NOT_FOUND, f"{path} cannot be loaded: {error}; reinstall the driver") from error
    pynvml.nvmlLib = library


def _unload() -> None:
    """Make pynvml forget the library and every pointer into it, then give the file up."""
    library: Any = pynvml.nvmlLib
    pynvml.nvmlLib = None
    pynvml._nvmlGetFunctionPointer_cache.clear()  # noqa: SLF001  no public way; a stale pointer calls into the old driver
    pynvml._nvmlLib_refcount = 0  # noqa: SLF001
    _dlclose(library._handle)  # noqa: SLF001  ctypes has no public way to close


def _dlclose(handle: int) -> None:
    close = ctypes.CDLL(None).dlclose
    close.argtypes = (ctypes.c_void_p,)
    close(handle)
