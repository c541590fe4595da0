"""GPUs that somebody on this node works on, so that they are not offered meanwhile: one small file each, with an end.

The agent writes them, the plugin reads them; neither needs the other to be alive. An end in the future stands behind each, so that an
agent that dies leaves no GPU out of service. It is told by the kernel's clock since boot, which both share and nobody sets; those of
another boot have ended. Blocking, a few small local files.
"""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpu_dra.core.errors import Broken
from gpu_dra.core.files import write_atomically

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

DIRECTORY = "reserved"
"""Below the plugin's data directory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """A GPU out of service."""

    uuid: str
    reason: str
    until: float
    """Seconds of `CLOCK_MONOTONIC`."""
    exclusive: bool
    """Nobody else may have NVML open: a change of MIG mode is refused while a client holds the GPU."""


class Reservations:
    """The files of one node."""

    def __init__(self, data: Path, *, boot_id: str) -> None:
        """`data`: the plugin's data directory. `boot_id`: of this boot."""
        self._directory = data / DIRECTORY
        self._boot_id = boot_id

    def stamp(self) -> int:
        """Differs when a file was written or removed since: one stat, so that nobody needs to read every second."""
        try:
            return self._directory.stat().st_mtime_ns
        except OSError:
            return 0

    def read(self, *, now: float) -> tuple[Reservation, ...]:
        """Those that have not ended, `now` being the clock's; a file that cannot be understood reserves nothing."""
        return tuple(each for each in self._all() if each.until > now)

    def write(self, reservation: Reservation) -> None:
        """Reserve, or reserve for longer. Raises Broken."""
        content = {
            "uuid": reservation.uuid,
            "reason": reservation.reason,
            "boot_id": self._boot_id,
            "until": reservation.until,
            "exclusive": reservation.exclusive,
        }
        try:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_atomically(self._path(reservation.uuid), json.dumps(content).encode())
        except OSError as error:
            raise Broken(f"cannot write below {self._directory}: {error.strerror}; run as root") from error

    def remove(self, uuid: str) -> None:
        """End a reservation; one that is not there is nothing."""
        with contextlib.suppress(OSError):
            self._path(uuid).unlink(missing_ok=True)

    def _path(self, uuid: str) -> Path:
        return self._directory / f"{uuid}.json"

    def _all(self) -> Iterator[Reservation]:
        for path in sorted(self._directory.glob("GPU-*.json")):
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                content = json.loads(path.read_bytes())
                if content["boot_id"] != self._boot_id:
                    continue
                yield Reservation(
                    uuid=str(content["uuid"]),
                    reason=str(content["reason"]),
                    until=float(content["until"]),
                    exclusive=bool(content["exclusive"]),
                )
