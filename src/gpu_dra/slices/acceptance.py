"""What the server made of the devices we sent.

A server whose feature gates are off drops fields silently, and would be sent them again for ever. What it stored is therefore taken as
what we want from then on, with one exception: a device that lost what restrains its use (a taint, a counter it shares with others) is
withdrawn, since without it the device would be offered as healthy, or together with partitions that overlap it.
What was learned of a content holds until the plugin ends: a GPU that turns sick a second time must not be offered for the time of one
write. A gate that is switched on later is noticed at the next start.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gpu_dra.slices.compare import fingerprint, lost_fields
from gpu_dra.slices.pool import DesiredPool, DesiredSlice, Dropped

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gpu_dra.kube.api import Object

_GATES = {
    "taints": "DRADeviceTaints",
    "consumesCounters": "DRAPartitionableDevices",
    "bindingConditions": "DRADeviceBindingConditions",
    "allowMultipleAllocations": "DRAConsumableCapacity",
}
_RESTRAINTS = frozenset({"taints", "consumesCounters"})


class Acceptance:
    """Remembers, per content of a device, what the server stored for it."""

    def __init__(self) -> None:
        self._stored: dict[str, Object | None] = {}

    def adapt(self, pool: DesiredPool) -> DesiredPool:
        """The pool as the server is known to take it."""
        if not self._stored:
            return pool
        return replace(pool, slices=tuple(DesiredSlice(devices=tuple(self._adapted(piece))) for piece in pool.slices))

    def learn(self, sent: Sequence[Object], stored: Sequence[Object]) -> tuple[Dropped, ...]:
        """Compare the devices of one slice as sent and as stored; returns what the server did not keep."""
        by_name = {device["name"]: device for device in stored}
        dropped = []
        for device in sent:
            kept = by_name.get(device["name"])
            if kept is not None and fingerprint(kept) == fingerprint(device):
                continue
            lost = lost_fields(device, kept or {})
            self._stored[fingerprint(device)] = None if lost & _RESTRAINTS else kept
            dropped.append(_report(device, lost))
        return tuple(dropped)

    def _adapted(self, piece: DesiredSlice) -> Iterator[Object]:
        for device in piece.devices:
            adapted = self._stored.get(fingerprint(device), device)
            if adapted is not None:
                yield adapted


def _report(device: Object, lost: frozenset[str]) -> Dropped:
    gates = sorted(_GATES[field] for field in lost if field in _GATES)
    advice = f"; the API server's feature gates {', '.join(gates)} are probably off" if gates else ""
    outcome = "the device is withdrawn" if lost & _RESTRAINTS else "it is left as stored"
    fields = ", ".join(sorted(lost)) or "fields of its own"
    return Dropped(device=device["name"], what="device", reason=f"the server stored {fields} differently, {outcome}{advice}")
