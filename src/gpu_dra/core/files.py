"""Files that are either the old content or the new, whatever happens in between.

The temporary file lies in the same directory and starts with a dot: the container runtime's CDI cache notices a rename within the
directory and ignores names without a known ending (source: container-device-interface `pkg/cdi`).
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path


_TEMPORARY: Final = re.compile(r"\.(?P<name>.+)\.[0-9a-f]{8}\.tmp")


def write_atomically(path: Path, content: bytes, *, mode: int = 0o644) -> None:
    """Replace `path` by `content` so that a crash or a power cut leaves one or the other. Raises OSError.

    Blocking: one write and two fsyncs.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        try:
            os.fchmod(descriptor, mode)
            view = memoryview(content)
            while view:
                view = view[os.write(descriptor, view) :]
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    sync_directory(path.parent)


def temporary_for(name: str) -> str | None:
    """The file that a temporary file of `write_atomically` was to become; None for any other name. Killed writers leave them behind."""
    match = _TEMPORARY.fullmatch(name)
    return match["name"] if match else None


def remove_durably(path: Path) -> bool:
    """Delete a file and make the deletion survive a power cut. False when there was none. Raises OSError."""
    try:
        path.unlink()
    except FileNotFoundError:
        return False
    sync_directory(path.parent)
    return True


def sync_directory(directory: Path) -> None:
    """Flush a directory's entries to disk."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
