"""The stored slices as last seen: a list, kept up to date by what the watch tells and by the answers to our own writes."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpu_dra.kube.api import Object

_TOLD_AT_MOST: Final = 64
"""More changes than anybody makes to a slice while one write is answered."""
_GONE_AT_MOST: Final = 64
"""More slices than go while one write is answered."""


class StoredSlices:
    """Slices by name.

    What the watch tells of a slice before it tells our own last write is passed over: it would show that write as drift. The watch may
    also be faster than the answer to the write; then what it told since is the newer truth. Resource versions are compared for equality
    only, since they are opaque.
    """

    def __init__(self) -> None:
        self._slices: dict[str, Object] = {}
        self._expected: dict[str, str] = {}
        """Resource version of our last write by slice, until the watch told it."""
        self._told: dict[str, deque[str]] = {}
        """Resource versions that the watch told last, by slice, since the answer to our last write."""
        self._gone: dict[str, None] = {}
        """Slices that the watch told of and then told to be gone, longest ago first: the answer to a write of theirs may still come."""
        self.listed = False
        """False until the first list."""
        self.doubtful = False
        """True when only another list can tell what is stored, e.g. after a write whose answer was lost."""

    def replace(self, slices: Iterable[Object]) -> None:
        """Begin again from a list."""
        self._slices = {slice_["metadata"]["name"]: slice_ for slice_ in slices}
        self._expected.clear()
        self._told.clear()
        self._gone.clear()
        self.listed, self.doubtful = True, False

    def remember(self, slice_: Object) -> None:
        """Take in the answer to our own write."""
        name, version = slice_["metadata"]["name"], slice_["metadata"]["resourceVersion"]
        if version not in self._told.pop(name, ()):
            self._slices[name] = slice_
            self._expected[name] = version

    def forget(self, name: str) -> None:
        """Take in our own deletion."""
        self._slices.pop(name, None)
        self._expected.pop(name, None)
        self._told.pop(name, None)

    def changed(self, slice_: Object) -> None:
        """The watch tells that a slice appeared or is different."""
        name, version = slice_["metadata"]["name"], slice_["metadata"]["resourceVersion"]
        self._told.setdefault(name, deque(maxlen=_TOLD_AT_MOST)).append(version)
        if self._expected.get(name, version) == version:
            self._expected.pop(name, None)
            self._slices[name] = slice_

    def deleted(self, slice_: Object) -> bool:
        """The watch tells that a slice is gone; True when it was there for us."""
        name = slice_["metadata"]["name"]
        self._expected.pop(name, None)
        self._bury(name)
        return self._slices.pop(name, None) is not None

    def _bury(self, name: str) -> None:
        """Names are the server's and never come again, so what was told of the dead must not pile up."""
        if name in self._told:
            self._gone.pop(name, None)
            self._gone[name] = None
        while len(self._gone) > _GONE_AT_MOST:
            oldest = next(iter(self._gone))
            del self._gone[oldest]
            if oldest not in self._slices:
                self._told.pop(oldest, None)

    def all(self) -> tuple[Object, ...]:
        """Every slice, by name."""
        return tuple(self._slices[name] for name in sorted(self._slices))
