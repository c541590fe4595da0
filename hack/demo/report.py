"""Hold what a pod sees against what its claim was allocated.

Pure: takes the objects of the API and the pod's output. A container must list exactly the devices of its claims: for a MIG partition
that is the partition, and its parent GPU only as the line above it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

Object = dict[str, Any]

_GPU = re.compile(r"^GPU \d+: (?P<name>.+) \(UUID: (?P<uuid>GPU-[^)]+)\)$")
_MIG = re.compile(r"^\s+MIG (?P<name>\S+)\s+Device\s+\d+: \(UUID: (?P<uuid>MIG-[^)]+)\)$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A published device."""

    pool: str
    name: str
    uuid: str
    what: str
    """Model, and profile of a partition."""
    parent_uuid: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One container of the demo."""

    pod: str
    node: str
    allocated: tuple[Device, ...]
    seen: frozenset[str]
    """UUIDs of the usable devices that `nvidia-smi -L` lists inside."""
    stray: frozenset[str]
    """Those that no claim of the pod covers."""

    @property
    def right(self) -> bool:
        """True when the container sees its devices, all of them and no other."""
        return bool(self.allocated) and not self.stray and {device.uuid for device in self.allocated} == self.seen

    def verdict(self) -> str:
        """For the last column."""
        if self.right:
            return "exactly its claim"
        missing = {device.uuid for device in self.allocated} - self.seen
        return (
            "; ".join(
                [f"sees {uuid}, which it was not given" for uuid in sorted(self.stray)]
                + [f"does not see {uuid}" for uuid in sorted(missing)]
            )
            or "has no allocated claim"
        )


def published_devices(slices: Iterable[Object]) -> dict[tuple[str, str], Device]:
    """Devices of all slices by pool and name."""
    devices = {}
    for piece in slices:
        pool = piece["spec"]["pool"]["name"]
        for device in piece["spec"].get("devices", ()):
            attributes = device["attributes"]
            profile = attributes.get("profile", {}).get("string")
            product = attributes["productName"]["string"]
            devices[pool, device["name"]] = Device(
                pool=pool,
                name=device["name"],
                uuid=attributes["uuid"]["string"],
                what=f"{product} {profile}" if profile else product,
                parent_uuid=attributes.get("parentUUID", {}).get("string"),
            )
    return devices


def claims_of(pod: Object) -> list[str]:
    """Names of the ResourceClaims a pod uses, generated ones included."""
    names = [claim["resourceClaimName"] for claim in pod["spec"].get("resourceClaims", ()) if "resourceClaimName" in claim]
    statuses = pod.get("status", {}).get("resourceClaimStatuses", ())
    return names + [status["resourceClaimName"] for status in statuses if status.get("resourceClaimName")]


def allocated_devices(claim: Object, devices: Mapping[tuple[str, str], Device]) -> list[Device]:
    """What a claim was given, looked up in the slices; a GPU that was withdrawn since is known by its name alone."""
    results = claim.get("status", {}).get("allocation", {}).get("devices", {}).get("results", ())
    return [devices.get((result["pool"], result["device"])) or _withdrawn(result["pool"], result["device"]) for result in results]


def _withdrawn(pool: str, name: str) -> Device:
    return Device(pool=pool, name=name, uuid="", what="no longer published", parent_uuid=None)


def row(pod: Object, output: str, allocated: Sequence[Device]) -> Row:
    """Compare one container's `nvidia-smi -L` with its pod's allocation."""
    gpus, migs = set(), set()
    for line in output.splitlines():
        if match := _GPU.match(line):
            gpus.add(match["uuid"])
        elif match := _MIG.match(line):
            migs.add(match["uuid"])
    parents = {device.parent_uuid for device in allocated if device.parent_uuid}
    expected = {device.uuid for device in allocated}
    seen = frozenset((gpus - parents) | migs)
    return Row(
        pod=pod["metadata"]["name"],
        node=pod["spec"].get("nodeName", "-"),
        allocated=tuple(allocated),
        seen=seen,
        stray=frozenset(seen - expected),
    )
