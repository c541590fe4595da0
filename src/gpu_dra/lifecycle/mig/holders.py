"""Who holds which of a node's GPUs, from the claims of the cluster. Pure.

A claim that is allocated holds its device before the kubelet prepares it, and until it is deallocated; one under adminAccess takes
nothing away from anybody, but its container has the GPU open.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from gpu_dra import DRIVER_NAME

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_DEVICE = re.compile(r"gpu-(?P<minor>\d+)(-mig-.+)?")
"""Device names as `slices` publishes them."""


def holders(claims: Iterable[Mapping[str, Any]], *, node_name: str) -> dict[int, list[str]]:
    """By device minor: `claim namespace/name of pod a`, for every claim with a device of that GPU on this node."""
    found: dict[int, list[str]] = {}
    for claim in claims:
        status = claim.get("status") or {}
        results = ((status.get("allocation") or {}).get("devices") or {}).get("results") or []
        for minor in sorted({minor for result in results if (minor := _minor(result, node_name)) is not None}):
            found.setdefault(minor, []).append(_named(claim, status))
    return {minor: sorted(names) for minor, names in found.items()}


def minor_of(device: str) -> int | None:
    """The minor of the GPU behind a device name of ours; None for another name."""
    matched = _DEVICE.fullmatch(device)
    return int(matched["minor"]) if matched else None


def _minor(result: Mapping[str, Any], node_name: str) -> int | None:
    if result.get("driver") != DRIVER_NAME or result.get("pool") != node_name:
        return None
    return minor_of(str(result.get("device")))


def _named(claim: Mapping[str, Any], status: Mapping[str, Any]) -> str:
    metadata = claim["metadata"]
    pods = ", ".join(sorted(user["name"] for user in status.get("reservedFor") or ()))
    return f"claim {metadata['namespace']}/{metadata['name']}" + (f" of pod {pods}" if pods else ", allocated to no pod now")
