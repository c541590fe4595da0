"""What this node did for a claim: the content of the journal, independent of how it is stored."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from gpu_dra.model.claim import ClaimRef


class Phase(StrEnum):
    """How far a prepare came. INTENT: side effects may have begun and must be finished or undone. DONE: answered or answerable."""

    INTENT = "Intent"
    DONE = "Done"


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


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedClaim:
    """The journal entry of one claim."""

    ref: ClaimRef
    phase: Phase
    devices: tuple[PreparedDevice, ...]
    boot_id: str
    """The kernel's boot id at the time; after a reboot the record proves nothing about the host."""
    node_paths: tuple[str, ...] = ()
    """Device nodes the CDI file names, on the host view; checked before a repeat is answered."""
