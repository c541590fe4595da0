"""Remember what the driver root holds until it changes, so that a prepare costs some stats instead of a scan.

A driver container that is replaced, or a package that is upgraded, changes directories; their identity and mtime are compared before
each answer. An answer is never kept when there was nothing to find, or when a directory changed so recently that a further change
could leave its mtime as it is.
"""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING, Final

from gpu_dra.cdi.driver_files import DriverFiles, scan

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpu_dra.hardware.host import HostPaths

_SETTLED: Final = 100_000_000
"""Nanoseconds after which a change of a directory shows in its mtime: file systems stamp with the kernel's tick of at most 10 ms."""

_Stamp = tuple[int, int, int] | None


class DriverFilesCache:
    """The driver's files, as fresh as the directories they lie in. For use from any thread."""

    def __init__(self, host: HostPaths) -> None:
        self._host = host
        self._lock = threading.Lock()
        self._kept: tuple[DriverFiles, tuple[_Stamp, ...]] | None = None

    def get(self, version: str) -> DriverFiles:
        """Files of the driver `version`. Blocking: 0.1 ms when nothing changed, else a scan, by one thread at a time. Raises NotReady."""
        with self._lock:
            if self._kept is not None:
                files, stamps = self._kept
                if files.version == version and _stamps(files.watched) == stamps:
                    return files
            self._kept = None
            settled = time.time_ns() - _SETTLED
            files = scan(self._host, version)
            stamps = _stamps(files.watched)
            if all(stamp is None or stamp[2] < settled for stamp in stamps):
                self._kept = files, stamps
            return files

    def forget(self) -> None:
        """Scan again next time."""
        with self._lock:
            self._kept = None


def _stamps(directories: Iterable[str]) -> tuple[_Stamp, ...]:
    return tuple(map(_stamp, directories))


def _stamp(directory: str) -> _Stamp:
    try:
        found = os.stat(directory)  # noqa: PTH116 - dozens of them on the path of every prepare
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_mtime_ns
