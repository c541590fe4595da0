"""Decide what a prepare has to do, from frozen values alone.

Everything that can be refused is refused here, before anything on the host changes. The scheduler is not trusted never to double-book
(dra-contract: "check that no device is already in use by another claim"), and a device is recognised by its GPU and its place on it, not
by its name alone: names can shift over a reboot.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpu_dra.claims.config import check_configs
from gpu_dra.core.errors import Conflict, NotReady, Refused
from gpu_dra.model.inventory import DriverState

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpu_dra.model.claim import AllocatedClaim, AllocationResult, ClaimRef
    from gpu_dra.model.gpu import Gpu
    from gpu_dra.model.inventory import Inventory
    from gpu_dra.model.mig import MigDevice, Placement
    from gpu_dra.model.prepared import PreparedClaim, PreparedDevice


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedDevice:
    """One device to hand out, resolved to hardware."""

    request: str
    """Base request name."""
    pool: str
    name: str
    gpu: Gpu
    mig: MigDevice | None
    admin_access: bool
    share_id: str | None

    @property
    def uuid(self) -> str:
        """UUID of what the container gets."""
        return self.mig.uuid if self.mig else self.gpu.uuid

    @property
    def placement(self) -> Placement | None:
        """Where a MIG device sits on its GPU."""
        return self.mig.placement if self.mig else None


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparePlan:
    """What to make for a claim."""

    ref: ClaimRef
    devices: tuple[PlannedDevice, ...]
    driver_version: str


def plan_prepare(claim: AllocatedClaim, inventory: Inventory, holders: Iterable[PreparedClaim]) -> PreparePlan:
    """The plan for a claim that is new on this node.

    Raises NotReady for a device that is not here or is sick, Refused for a configuration we cannot honour, Conflict for a device that
    another claim of `holders` has. The claim's own record may be among them.
    """
    devices = tuple(_resolve(result, inventory) for result in claim.results)
    for result, device in zip(claim.results, devices, strict=True):
        check_configs(claim.configs, result, device_type="mig" if device.mig else "gpu")
        if device.gpu.unhealthy and not device.admin_access:
            raise NotReady(f"{device.name} ({device.gpu.pci}, {device.gpu.uuid}) is out of order: {device.gpu.unhealthy}")
    _refuse_double_booking(claim.ref, devices, holders)
    return PreparePlan(ref=claim.ref, devices=devices, driver_version=_driver_version(inventory))


def plan_repair(entry: PreparedClaim, inventory: Inventory) -> PreparePlan:
    """The plan to restore a recorded claim on the hardware it was given.

    A MIG device that was made anew at the same place of the same GPU is taken as the same; another GPU under the old name is not.
    Raises NotReady while the device is not here, Refused when its name now belongs to another GPU.
    """
    devices = []
    for recorded in entry.devices:
        gpu, mig = locate(recorded.device, inventory)
        if recorded.gpu_uuid not in ("", gpu.uuid):
            raise Refused(
                f"{recorded.device} was {recorded.gpu_uuid} when claim {entry.ref} was prepared and is {gpu.uuid} now; "
                "delete the claim's pods and the claim, so that it is allocated again"
            )
        devices.append(
            PlannedDevice(
                request=recorded.request,
                pool=recorded.pool,
                name=recorded.device,
                gpu=gpu,
                mig=mig,
                admin_access=recorded.admin_access,
                share_id=recorded.share_id,
            )
        )
    return PreparePlan(ref=entry.ref, devices=tuple(devices), driver_version=_driver_version(inventory))


def locate(device: str, inventory: Inventory) -> tuple[Gpu, MigDevice | None]:
    """The hardware behind a device name. Raises NotReady that says what the node has instead, and why."""
    if inventory.state is not DriverState.READY:
        raise NotReady(f"{device} is not available: {inventory.reason or inventory.state}")
    found = inventory.find(device)
    if found is None:
        raise NotReady(f"{device} is not on this node; it has {_what_is_here(inventory)}")
    return found


def _resolve(result: AllocationResult, inventory: Inventory) -> PlannedDevice:
    gpu, mig = locate(result.device, inventory)
    return PlannedDevice(
        request=result.base_request,
        pool=result.pool,
        name=result.device,
        gpu=gpu,
        mig=mig,
        admin_access=result.admin_access,
        share_id=result.share_id,
    )


def _refuse_double_booking(ref: ClaimRef, devices: Iterable[PlannedDevice], holders: Iterable[PreparedClaim]) -> None:
    others = [(holder, held) for holder in holders if holder.ref.uid != ref.uid for held in holder.devices if not held.admin_access]
    for device in devices:
        if device.admin_access:
            continue
        for holder, held in others:
            if held.overlaps(device.name, device.gpu.uuid, device.placement) and not _are_shares(device, held):
                raise Conflict(f"{device.name} ({device.uuid}) is held by claim {holder.ref}; waiting until that is unprepared")


def _are_shares(device: PlannedDevice, held: PreparedDevice) -> bool:
    """Two different shares of one device may be held by two claims (`shareID` of multi-allocatable devices)."""
    return device.share_id is not None and held.share_id is not None and device.share_id != held.share_id


def _driver_version(inventory: Inventory) -> str:
    if inventory.driver_version is None:
        raise NotReady("the driver's version is not known yet; its libraries cannot be told from another version's")
    return inventory.driver_version


def _what_is_here(inventory: Inventory) -> str:
    here = ", ".join(device.name for device in inventory.devices()) or "no device"
    partitioned = ", ".join(gpu.name for gpu in inventory.gpus if gpu.in_mig_mode)
    faults = "; ".join(f"{fault.where}: {fault.reason}" for fault in inventory.faults)
    return here + (f"; in MIG mode: {partitioned}" if partitioned else "") + (f"; unusable: {faults}" if faults else "")
