"""What the publisher tells about itself, for metrics and Events."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpu_dra.core.errors import GpuDraError
    from gpu_dra.kube.errors import Invalid
    from gpu_dra.slices.pool import Dropped


class PublisherObserver(Protocol):
    """Called on the event loop; must neither block nor raise. The publisher logs by itself."""

    def standing_by(self) -> None:
        """Another process of this node holds the publisher lock; nothing is written until it ends."""
        ...

    def took_over(self) -> None:
        """The publisher lock is ours now, after another process held it."""
        ...

    def wrote(self, verb: str) -> None:
        """One write succeeded: `create`, `update` or `delete`."""
        ...

    def published(self, *, slices: int, devices: int) -> None:
        """What is stored is right now; called after each check, also when nothing had to be written."""
        ...

    def not_kept(self, dropped: Sequence[Dropped]) -> None:
        """The server stored devices differently from what was sent."""
        ...

    def refused(self, error: Invalid) -> None:
        """The server will never take the pool as it is; nothing is written until another one is to be published."""
        ...

    def failed(self, error: GpuDraError, *, retry_in: float) -> None:
        """Reading or writing failed and is tried again in `retry_in` seconds; what is stored stays."""
        ...
