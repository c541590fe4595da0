"""CDI specs for devices that exist only in a simulation: an environment variable a device, and nothing of the host.

Lets somebody without a GPU follow a claim from the manifest into the container (`--simulate h100x8`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpu_dra.cdi.builder import BuiltSpec
from gpu_dra.cdi.naming import CLAIM_KIND, check_uid, device_name
from gpu_dra.cdi.spec import ContainerEdits, Device, Spec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpu_dra.cdi.builder import ClaimDevice


class SimulatedCdiBuilder:
    """Stands in for `cdi.builder.CdiBuilder`."""

    def build(self, claim_uid: str, devices: Sequence[ClaimDevice], *, driver_version: str) -> BuiltSpec:
        """A spec that names the devices in the container's environment. Raises Refused for an impossible UID."""
        check_uid(claim_uid)
        spec = Spec(
            kind=CLAIM_KIND,
            devices=tuple(_device(claim_uid, device) for device in devices),
            edits=ContainerEdits(env=(f"GPU_DRA_SIMULATED_DRIVER={driver_version}",)),
        )
        ids = {device.name: (spec.cdi_id(device_name(claim_uid, device.name)),) for device in devices}
        missing = ("the device itself: this node simulates its GPUs",)
        return BuiltSpec(spec=spec, cdi_ids=ids, node_paths=(), missing=missing)

    def missing_paths(self, spec: Spec) -> tuple[str, ...]:
        """Nothing can be missing."""
        return ()


def _device(uid: str, device: ClaimDevice) -> Device:
    uuid = device.mig.uuid if device.mig else device.gpu.uuid
    variable = f"GPU_DRA_SIMULATED_{device.name.upper().replace('-', '_')}"
    return Device(name=device_name(uid, device.name), edits=ContainerEdits(env=(f"{variable}={uuid}",)))
