"""What comes and goes beside the driver's own files, and is looked for anew each time: daemons' sockets and the hook program.

A daemon that starts, stops or moves its socket, or a toolkit that is installed later, changes no directory of the driver. Reads only.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from gpu_dra.cdi import catalog
from gpu_dra.cdi.driver_files import DriverFile
from gpu_dra.hardware.driver_root import resolve_in_root

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from gpu_dra.hardware.host import HostPaths


def find_sockets(host: HostPaths) -> tuple[DriverFile, ...]:
    """Sockets of the persistence daemon and the fabric manager, and the pipes of an MPS daemon of the host, as far as they exist."""
    found = [_first(host, places, stat.S_ISSOCK) for places in catalog.SOCKETS]
    found.append(_first(host, (catalog.MPS_DIRECTORY,), stat.S_ISDIR))
    return tuple(file for file in found if file is not None)


def find_hook(host: HostPaths) -> str | None:
    """`nvidia-cdi-hook` as the runtime sees it: the configured one unchecked, else the first in the usual places; None without one."""
    if host.cdi_hook is not None:
        return str(host.cdi_hook)
    program = _first(host, catalog.HOOK_PATHS, _is_program)
    return program.host_path if program is not None else None


def hook_places(host: HostPaths) -> tuple[str, ...]:
    """Where `find_hook` looks, as the host sees it."""
    return tuple(str(host.host_driver_root / path) for path in catalog.HOOK_PATHS)


def _is_program(mode: int) -> bool:
    return stat.S_ISREG(mode) and bool(mode & stat.S_IXUSR)


def _first(host: HostPaths, places: Iterable[str], wanted: Callable[[int], bool]) -> DriverFile | None:
    for place in places:
        if not os.path.lexists(host.driver_root / place):
            continue
        found = resolve_in_root(host.driver_root, place)
        if found is not None and wanted(found.stat().st_mode):
            return DriverFile(seen_at=str(found), host_path=str(host.on_host(found)), container_path=f"/{place}")
    return None
