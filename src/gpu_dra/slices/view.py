"""The stored slices as last seen: a list, kept up to date by watch events and by the answers to our own writes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpu_dra.kube.api import WatchKind

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpu_dra.kube.api import Object, WatchEvent


class StoredSlices:
    """Slices by name.

    Events that are older than an answer we already have are passed over: they would show our own last write as drift. Resource versions
    are compared for equality only, since they are opaque.
    """

    def __init__(self) -> None:
        self._slices: dict[str, Object] = {}
        self._expected: dict[str, str] = {}
        """Resource version of our last write by slice, until its event came."""
        self.listed = False
        """False until the first list, and whenever what is stored is in doubt."""

    def replace(self, slices: Iterable[Object]) -> None:
        """Begin again from a list."""
        self._slices = {slice_["metadata"]["name"]: slice_ for slice_ in slices}
        self._expected.clear()
        self.listed = True

    def doubt(self) -> None:
        """Something was written whose outcome is not known; only a list tells."""
        self.listed = False

    def remember(self, slice_: Object) -> None:
        """Take in the answer to our own write."""
        metadata = slice_["metadata"]
        self._slices[metadata["name"]] = slice_
        self._expected[metadata["name"]] = metadata["resourceVersion"]

    def forget(self, name: str) -> None:
        """Take in our own deletion."""
        self._slices.pop(name, None)
        self._expected.pop(name, None)

    def apply(self, event: WatchEvent) -> bool:
        """Take in one event; True when a slice is gone that was there."""
        if event.kind is WatchKind.BOOKMARK:
            return False
        metadata = event.object["metadata"]
        name = metadata["name"]
        if event.kind is WatchKind.DELETED:
            self._expected.pop(name, None)
            return self._slices.pop(name, None) is not None
        if self._expected.get(name, metadata["resourceVersion"]) == metadata["resourceVersion"]:
            self._expected.pop(name, None)
            self._slices[name] = event.object
        return False

    def all(self) -> tuple[Object, ...]:
        """Every slice, by name."""
        return tuple(self._slices[name] for name in sorted(self._slices))
