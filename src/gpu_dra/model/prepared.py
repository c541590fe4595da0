"""What this node did for a claim: the content of the journal, independent of how it is stored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from gpu_dra.model.claim import ClaimRef
from gpu_dra.model.mig import Placement


class Phase(StrEnum):
    """How far a prepare came. INTENT: side effects may have begun and must be finished or undone. DONE: answered or answerable."""

    INTENT = "Intent"
    DONE = "Done"


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """A change to the host beyond the CDI file, with all that a later process needs to make it again or to undo it."""

    kind: str
    data: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedDevice:
    """One device handed to the kubelet, with what is needed to answer again and to check that it is still the same device."""

    request: str
    """Base request name, without the sub-request part."""
    pool: str
    device: str
    uuid: str
    """GPU or MIG UUID the device had when it was prepared; another UUID under the same name is another device."""
    cdi_ids: tuple[str, ...]
    admin_access: bool = False
    share_id: str | None = None
    gpu_uuid: str = ""
    """The physical GPU: `uuid` itself or the parent's; empty when unknown (recovered from a CDI file alone)."""
    placement: Placement | None = None
    """Where a MIG device sits on its GPU; None for a whole GPU."""

    def overlaps(self, name: str, gpu_uuid: str, placement: Placement | None) -> bool:
        """True when another device is this one, or shares hardware with it; names alone can shift or have two spellings."""
        if self.device == name:
            return True
        if self.gpu_uuid != gpu_uuid:
            return False
        return self.placement is None or placement is None or self.placement.overlaps(placement)


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedClaim:
    """The journal entry of one claim."""

    ref: ClaimRef
    phase: Phase
    devices: tuple[PreparedDevice, ...]
    boot_id: str
    """The kernel's boot id at the time; after a reboot the record proves nothing about the host."""
    driver_version: str = ""
    """Whose libraries the CDI file names; with another driver loaded the file is stale."""
    node_paths: tuple[str, ...] = ()
    """Device nodes the CDI file names, on the host view; checked before a repeat is answered."""
    effects: tuple[Effect, ...] = ()
    """In the order they were made; undone backwards."""

    @property
    def device_names(self) -> frozenset[str]:
        """Names of the devices, each once."""
        return frozenset(device.device for device in self.devices)
