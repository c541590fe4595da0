"""Which devices a claim holds whose record is lost or damaged: as its CDI file tells or, where that is lost too, its allocation.

Enough to refuse them to other claims; the kubelet is answered only after a prepare. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpu_dra.model.claim import ClaimRef
from gpu_dra.model.prepared import Phase, PreparedClaim, PreparedDevice

if TYPE_CHECKING:
    from gpu_dra.cdi.spec import Spec
    from gpu_dra.model.claim import AllocatedClaim
    from gpu_dra.model.inventory import Inventory

UNKNOWN = "unknown"
"""Namespace and name of a claim that is known by its UID alone."""


def recover_claim(uid: str, spec: Spec | None, inventory: Inventory) -> PreparedClaim:
    """The claim as a holder of devices; with none when there is no readable file."""
    names = [] if spec is None else [device.name.removeprefix(f"{uid}-") for device in spec.devices]
    nodes = [] if spec is None else [node.host_path or node.path for device in spec.devices for node in device.edits.device_nodes]
    return PreparedClaim(
        ref=ClaimRef(namespace=UNKNOWN, name=UNKNOWN, uid=uid),
        phase=Phase.INTENT,
        devices=tuple(_device(name, inventory) for name in names),
        boot_id="",
        node_paths=tuple(dict.fromkeys(nodes)),
    )


def recover_allocation(claim: AllocatedClaim, inventory: Inventory) -> PreparedClaim:
    """The claim as a holder of what the scheduler gave it; administrators' access holds nothing."""
    names = dict.fromkeys(result.device for result in claim.results if not result.admin_access)
    return PreparedClaim(ref=claim.ref, phase=Phase.INTENT, devices=tuple(_device(name, inventory) for name in names), boot_id="")


def _device(name: str, inventory: Inventory) -> PreparedDevice:
    found = inventory.find(name)
    gpu, mig = found or (None, None)
    return PreparedDevice(
        request="",
        pool="",
        device=name,
        uuid=mig.uuid if mig else gpu.uuid if gpu else "",
        cdi_ids=(),
        gpu_uuid=gpu.uuid if gpu else "",
        placement=mig.placement if mig else None,
    )
