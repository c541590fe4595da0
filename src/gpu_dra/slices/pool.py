"""What this node should publish: one pool, its slices and the reasons for what is missing from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpu_dra.kube.api import Object


@dataclass(frozen=True, slots=True, kw_only=True)
class Dropped:
    """Something that is not published as it was found, and why."""

    device: str
    what: str
    """`device`, or the part of it: `attribute driverVersion`, `capacity memory`, `taints`."""
    reason: str

    def __str__(self) -> str:
        return f"{self.device}: {self.what}: {self.reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DesiredSlice:
    """The devices of one slice, in the order in which the scheduler tries them; may be empty."""

    devices: tuple[Object, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DesiredPool:
    """The pool of one node, named like the node. Has at least one slice: an empty one says "driver alive, nothing to offer".

    Without a slice it is withdrawn: the node's GPUs are somebody else's to offer.
    """

    driver: str
    node_name: str
    slices: tuple[DesiredSlice, ...]
    dropped: tuple[Dropped, ...] = ()

    @property
    def name(self) -> str:
        """Name of the pool; part of every device's identity."""
        return self.node_name

    @property
    def withdrawn(self) -> bool:
        """True when nothing of ours should be stored."""
        return not self.slices

    @property
    def device_count(self) -> int:
        """Devices in all slices."""
        return sum(len(piece.devices) for piece in self.slices)
