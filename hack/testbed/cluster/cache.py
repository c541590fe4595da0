"""Where built tools are kept between checkouts, and how two runs share them.

An entry is made in a temporary folder and renamed into place, so one that exists is complete. A lock per entry name keeps two runs
from building the same thing at the same time.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from hack.testbed.cluster.errors import Say


def cache_folder() -> Path:
    """`$GPU_DRA_CACHE`, else `gpu-dra` in the user's cache folder."""
    named = os.environ.get("GPU_DRA_CACHE")
    if named:
        return Path(named)
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "gpu-dra"


def make_once(entry: Path, fill: Callable[[Path], None], *, say: Say) -> Path:
    """Return `entry`, after `fill` made it in a temporary folder beside it if it was not there. Raises what `fill` raises."""
    if entry.exists():
        return entry
    entry.parent.mkdir(parents=True, exist_ok=True)
    with _locked(entry.with_name(f".{entry.name}.lock"), say=say):
        if entry.exists():
            return entry
        temporary = Path(tempfile.mkdtemp(prefix=f".{entry.name}-", dir=entry.parent))
        try:
            fill(temporary)
            temporary.chmod(0o755)
            temporary.rename(entry)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    return entry


@contextlib.contextmanager
def _locked(path: Path, *, say: Say) -> Iterator[None]:
    """Hold an exclusive lock; the kernel drops it when the process dies."""
    with path.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"another run is making {path.name.removeprefix('.').removesuffix('.lock')}; waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
