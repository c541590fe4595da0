"""The MIG devices of one GPU, with names, placements and amounts from NVML and never computed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpu_dra.hardware.nvml import GPU_INSTANCE_PROFILE_KINDS
from gpu_dra.hardware.nvml_errors import GpuLost, InvalidArgument, NotFound, NotSupported, NvmlError
from gpu_dra.model.mig import MigDevice

if TYPE_CHECKING:
    from gpu_dra.hardware.nvml import GpuHandle, Nvml
    from gpu_dra.model.gpu import Gpu
    from gpu_dra.model.mig import MigProfile


def devices(nvml: Nvml, handle: GpuHandle, gpu: Gpu, warnings: list[str]) -> tuple[MigDevice, ...]:
    """MIG devices that fill their GPU instance, by placement. One that cannot be described costs itself and adds a warning.

    Raises GpuLost, and NvmlError when the GPU does not say how many there can be.
    """
    found = []
    profiles = _profiles(nvml, handle)
    for index in range(nvml.most_mig_devices(handle)):
        try:
            device = _device(nvml, handle, gpu, index, profiles)
        except GpuLost:
            raise
        except NotFound:
            continue  # indices have gaps
        except NvmlError as error:
            warnings.append(f"{gpu.name} ({gpu.pci}): MIG device {index} left out: {error}")
            continue
        if device is None:
            warnings.append(
                f"{gpu.name} ({gpu.pci}): MIG device {index} left out: its compute instance does not fill its GPU instance"
            )
        else:
            found.append(device)
    return tuple(sorted(found, key=lambda device: (device.placement.start, device.gpu_instance_id)))


def uuids(nvml: Nvml, handle: GpuHandle) -> tuple[str, ...]:
    """UUIDs of the MIG devices that exist now: enough to notice a change. Raises NvmlError."""
    found = []
    for index in range(nvml.most_mig_devices(handle)):
        try:
            found.append(nvml.uuid(nvml.mig_device(handle, index)))
        except NotFound:
            continue
    return tuple(found)


def _device(nvml: Nvml, handle: GpuHandle, gpu: Gpu, index: int, profiles: dict[int, MigProfile]) -> MigDevice | None:
    device = nvml.mig_device(handle, index)
    info = nvml.mig_device_info(device)
    if not info.fills_its_gpu_instance:
        return None
    instance = nvml.gpu_instance_info(nvml.gpu_instance_by_id(handle, info.gpu_instance_id))
    profile = profiles.get(instance.profile_id)
    if profile is None:
        raise NvmlError("nvmlDeviceGetGpuInstanceProfileInfoV", 0, f"the board has no profile with id {instance.profile_id}")
    return MigDevice(
        uuid=nvml.uuid(device),
        parent_minor=gpu.minor,
        parent_uuid=gpu.uuid,
        gpu_instance_id=info.gpu_instance_id,
        compute_instance_id=info.compute_instance_id,
        profile=profile,
        placement=instance.placement,
    )


def _profiles(nvml: Nvml, handle: GpuHandle) -> dict[int, MigProfile]:
    """The board's profiles by profile id."""
    found = {}
    for kind in GPU_INSTANCE_PROFILE_KINDS:
        try:
            profile = nvml.gpu_instance_profile(handle, kind).profile
        except (NotSupported, InvalidArgument):
            continue
        found[profile.profile_id] = profile
    return found
