"""Find the driver's libraries below a driver root such as `/`, `/run/nvidia/driver` or `/home/kubernetes/bin/nvidia`.

The root is another file tree than ours, so symbolic links in it are followed inside it (an absolute link begins at the root), and a
path is handed out with its links resolved, since the container runtime and the loader would follow them elsewhere. Looks in the
directories that distributions use (the list of NVIDIA's container toolkit, `pkg/lookup`), then where the root's `ld.so.cache`
points. A name alone is no proof: a directory, a 32-bit or a damaged file of that name is passed over and named in the error.
Knows nothing of what is done with the libraries.
"""

from __future__ import annotations

import itertools
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gpu_dra.core.errors import NotReady
from gpu_dra.hardware import elf, ldcache

if TYPE_CHECKING:
    from collections.abc import Iterator

_TRIPLETS: Final = ("x86_64-linux-gnu", "aarch64-linux-gnu")
_DIRECTORIES: Final = (
    "usr/lib64",
    *(f"usr/lib/{triplet}" for triplet in _TRIPLETS),
    *(f"usr/lib/{triplet}/nvidia/current" for triplet in _TRIPLETS),
    "lib64",
    *(f"lib/{triplet}" for triplet in _TRIPLETS),
    *(f"lib/{triplet}/nvidia/current" for triplet in _TRIPLETS),
    "usr/lib",
    "lib",
    "",
)
_LOADER_CACHE: Final = "etc/ld.so.cache"
_SETTING: Final = "--nvidia-driver-root (node.driverRoot of the chart)"
_MOST_LINKS: Final = 40
"""As the kernel's own limit, MAXSYMLINKS."""


class DriverRootNotFound(NotReady):
    """No such library below the driver root; the message lists where it was looked for and what was passed over."""


def resolve_in_root(root: Path, path: str | Path) -> Path | None:
    """Where `path`, absolute or relative to `root`, really is; None when it does not exist or its links go round in circles.

    Never leaves the root: `..` stops there and an absolute link begins there.
    """
    pending = [part for part in reversed(Path(path).parts) if part != "/"]
    resolved: list[str] = []
    links = 0
    while pending:
        part = pending.pop()
        if part == "..":
            del resolved[-1:]
            continue
        here = root.joinpath(*resolved, part)
        try:
            target = here.readlink() if here.is_symlink() else None
        except OSError:
            return None
        if target is None:
            resolved.append(part)
            continue
        links += 1
        if links > _MOST_LINKS:
            return None
        if target.is_absolute():
            resolved.clear()
        pending.extend(part for part in reversed(target.parts) if part != "/")
    found = root.joinpath(*resolved)
    return found if os.path.lexists(found) else None


def library_directories(root: Path) -> tuple[Path, ...]:
    """The directories of libraries that exist below `root`, links resolved, each once, in search order."""
    return tuple(_directories(root))


def find_library(root: Path, name: str, *, on_host: Path | None = None) -> Path:
    """The file behind `name` (`libcuda.so.1`) below `root`, for this machine's architecture, links resolved.

    Raises DriverRootNotFound with everything that was tried, in paths of the host, where `root` is `on_host`.
    """
    looked_in: list[Path] = []
    passed_over: list[str] = []

    def told(path: Path) -> Path:
        return path if on_host is None else on_host / path.relative_to(root)

    for directory in _directories(root):
        looked_in.append(told(directory))
        candidate = directory / name
        if not os.path.lexists(candidate):
            continue
        path = resolve_in_root(root, candidate.relative_to(root))
        objection = "its link leads nowhere" if path is None else _objection(path)
        if path is not None and objection is None:
            return path
        passed_over.append(f"{told(candidate)} ({objection})")
    raise DriverRootNotFound(_not_found(told(root), name, looked_in, passed_over, exists=root.is_dir()))


def _directories(root: Path) -> Iterator[Path]:
    """Lazily, since the loader cache is worth reading only when the usual places do not hold what is wanted."""
    seen: set[Path] = set()
    for candidate in itertools.chain(_DIRECTORIES, _cached_directories(root)):
        path = resolve_in_root(root, candidate)
        if path is not None and path not in seen and path.is_dir():
            seen.add(path)
            yield path


def _cached_directories(root: Path) -> Iterator[str]:
    """Directories the root's loader cache names; a cache that is absent or damaged names none, the fixed list still serves."""
    path = resolve_in_root(root, _LOADER_CACHE)
    if path is None:
        return
    try:
        entries = ldcache.parse(path.read_bytes())
    except (OSError, ldcache.DamagedLoaderCache):
        return
    yield from dict.fromkeys(os.path.dirname(entry.path) for entry in entries)  # noqa: PTH120  pathlib costs 10 ms on 3000 entries


def _objection(path: Path) -> str | None:
    """Why a file cannot be loaded into this process, None when it can."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            return "not a file"
        machine = elf.read(path).machine
    except (OSError, elf.NotAnElfFile) as error:
        return str(error)
    return None if machine == elf.own_machine() else f"for another architecture, ELF machine {machine}"


def _not_found(root: Path, name: str, looked_in: list[Path], passed_over: list[str], *, exists: bool) -> str:
    if not exists:
        return f"the driver root {root} does not exist; install the NVIDIA driver there or set {_SETTING} to where it is"
    looked = ", ".join(str(directory) for directory in looked_in) or "no library directory at all"
    passed = f"; passed over: {', '.join(passed_over)}" if passed_over else ""
    where = f"below the driver root {root} (looked in {looked}{passed})"
    return f"{name} was not found {where}; install the NVIDIA driver or set {_SETTING}"
