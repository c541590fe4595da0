"""A directory tree as a list of values, and the one function that writes it.

Planners (`driver_files`, `kernel_files`) return entries with paths relative to a root; `write` puts them on disk. Writing the same
entries twice gives the same tree: an entry replaces what is in its place, directories stay.
"""

from __future__ import annotations

import os
import shutil
import socket
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING, assert_never

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """A regular file with its content."""

    path: str
    content: bytes
    mode: int = 0o644


@dataclass(frozen=True, slots=True, kw_only=True)
class CopiedFile:
    """A regular file that is copied from somewhere else: a library or program built before."""

    path: str
    source: Path
    mode: int = 0o755


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A symbolic link; the target is written as it stands."""

    path: str
    target: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Directory:
    """A directory that is wanted even when nothing lies in it."""

    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CharDevice:
    """A character device node."""

    path: str
    major: int
    minor: int
    mode: int = 0o666


@dataclass(frozen=True, slots=True, kw_only=True)
class Socket:
    """A Unix socket that nobody listens on."""

    path: str


Entry = File | CopiedFile | Link | Directory | CharDevice | Socket


def write(root: Path, entries: Iterable[Entry], *, device_nodes: bool = True) -> None:
    """Write `entries` below `root`. Raises OSError; PermissionError without the right to make device nodes.

    With `device_nodes=False` a regular file that names type and numbers stands for each node. Unit tests need it where mknod(2)
    is not theirs to call; nothing that opens or injects devices can work with it, so it never happens by itself.
    """
    for entry in entries:
        path = root / entry.path
        if isinstance(entry, Directory):
            path.mkdir(parents=True, exist_ok=True)
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        if isinstance(entry, CharDevice) and not device_nodes:
            path.write_text(f"c {entry.major}:{entry.minor}\n")
        else:
            _write_one(path, entry)


def _write_one(path: Path, entry: File | CopiedFile | Link | CharDevice | Socket) -> None:
    match entry:
        case File():
            path.write_bytes(entry.content)
            path.chmod(entry.mode)
        case CopiedFile():
            shutil.copyfile(entry.source, path)
            path.chmod(entry.mode)
        case Link():
            path.symlink_to(entry.target)
        case CharDevice():
            _make_node(path, entry)
        case Socket():
            _bind_socket(path)
        case _:
            assert_never(entry)


def _make_node(path: Path, entry: CharDevice) -> None:
    try:
        os.mknod(path, stat.S_IFCHR | entry.mode, os.makedev(entry.major, entry.minor))
    except PermissionError as error:
        raise PermissionError(error.errno, f"cannot make device node {path} ({entry.major}:{entry.minor}); run as root") from error
    path.chmod(entry.mode)  # mknod applies the umask


def _bind_socket(path: Path) -> None:
    """A socket's address has 108 bytes at most; through its directory's descriptor any path fits."""
    directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(f"/proc/self/fd/{directory}/{path.name}")
    finally:
        os.close(directory)
