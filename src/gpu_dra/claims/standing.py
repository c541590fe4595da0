"""How a claim that is held on this node stands with the API, and what follows from it. Pure."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any

from gpu_dra.claims.read import read_claim
from gpu_dra.core.errors import NotReady, Refused
from gpu_dra.model.claim import ClaimRef

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpu_dra.model.prepared import PreparedClaim


class Standing(StrEnum):
    """What the API says of a claim; never made from an API error."""

    OURS = "Ours"
    """There, and allocated the devices that are held for it."""
    GONE = "Gone"
    """No claim with this UID any more."""
    MOVED = "Moved"
    """There, but its allocation no longer names these devices; an allocation is cleared only when no pod is entitled to it."""


def standing_of(claim: Mapping[str, Any] | None, entry: PreparedClaim, *, driver: str, pool: str) -> Standing:
    """Compare by UID. `claim` is what the API has under the name, None when there is nothing."""
    if claim is None or (claim.get("metadata") or {}).get("uid") != entry.ref.uid:
        return Standing.GONE
    try:
        allocated = read_claim(claim, entry.ref, driver=driver, pool=pool)
    except (NotReady, Refused):
        return Standing.MOVED
    same = not entry.device_names or entry.device_names == {result.device for result in allocated.results}
    return Standing.OURS if same else Standing.MOVED


def reference(claim: Mapping[str, Any]) -> ClaimRef:
    """Which claim an API object is."""
    metadata = claim["metadata"]
    return ClaimRef(namespace=metadata["namespace"], name=metadata["name"], uid=metadata["uid"])
