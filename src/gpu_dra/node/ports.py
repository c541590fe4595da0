"""What the gRPC services need from the other rooms, so that each can be tested with a stand-in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from gpu_dra.model.claim import ClaimRef
    from gpu_dra.model.inventory import Inventory
    from gpu_dra.model.prepared import PreparedClaim


class Claims(Protocol):
    """Prepares and unprepares one claim; raises `GpuDraError` with a reason for the person who reads the pod's events."""

    async def prepare(self, ref: ClaimRef) -> PreparedClaim:
        """What the kubelet gets for this claim."""
        ...

    async def unprepare(self, ref: ClaimRef) -> None:
        """Undo; succeeds for a claim that was never prepared here."""
        ...


class Inventories(Protocol):
    """The node's inventory now and whenever it changes."""

    @property
    def current(self) -> Inventory:
        """The newest snapshot."""
        ...

    @property
    def age(self) -> float:
        """Seconds since the hardware was last looked at."""
        ...

    def changes(self) -> AsyncIterator[Inventory]:
        """The current snapshot, then each new one; a slow reader sees the newest and misses those between."""
        ...
