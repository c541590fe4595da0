"""What this node holds, one file per claim, so that a damaged file costs one claim and a write costs the same however many are held.

Made for two plugin processes that overlap in a rolling update: nothing is trusted from memory, every call looks at the directory; a file
that did not change (inode, size, mtime) is not read again. Files change by rename only, so no reader ever sees half a file, and whoever
writes a claim's file holds that claim's lock. Blocking.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from gpu_dra.cdi.naming import check_uid
from gpu_dra.claims.journal_format import Damage, DamagedEntry, decode, encode
from gpu_dra.core.errors import Broken, Refused
from gpu_dra.core.files import remove_durably, sync_directory, temporary_for, write_atomically

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from gpu_dra.model.prepared import PreparedClaim

_SUFFIX: Final = ".json"
_NO_FILE: Final = frozenset({errno.EISDIR, errno.ELOOP, errno.ENXIO, errno.ENODEV})
"""Errors that tell of something else in a record's place."""

_Signature = tuple[int, int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalScan:
    """The directory at one moment."""

    entries: Mapping[str, PreparedClaim]
    """By claim UID."""
    damaged: Mapping[str, DamagedEntry] = field(default_factory=dict)
    """UIDs whose file cannot be used; it stays in place until the claim's lock is held, so it still marks that something is held."""
    strangers: tuple[str, ...] = ()
    """Names that are no claim's file."""


class Journal:
    """The claims' records in `<plugin dir>/claims`; what cannot be used goes to `<plugin dir>/set-aside`."""

    def __init__(self, plugin_directory: Path) -> None:
        self._directory = plugin_directory / "claims"
        self._set_aside = plugin_directory / "set-aside"
        self._cache: dict[str, tuple[_Signature, PreparedClaim]] = {}  # by file name

    def create_directories(self) -> None:
        """Make what is missing. Raises Broken."""
        with self._translated():
            for directory in (self._directory, self._set_aside):
                directory.mkdir(mode=0o700, parents=True, exist_ok=True)

    def read(self, uid: str) -> PreparedClaim | None:
        """The claim's record; None when there is none. Raises DamagedEntry, Broken, Refused for an impossible UID."""
        check_uid(uid)
        with self._translated():
            try:
                state = os.stat(self._path(uid))  # noqa: PTH116 - on the path of every prepare
            except FileNotFoundError:
                return None
            found = self._load(uid, state)
        if isinstance(found, DamagedEntry):
            raise found
        return found

    def has(self, uid: str) -> bool:
        """True when the claim has a file, whatever is in it."""
        return os.path.lexists(self._path(uid))

    def scan(self) -> JournalScan:
        """Everything, at the price of one directory listing and one stat a claim. Raises Broken."""
        entries: dict[str, PreparedClaim] = {}
        damaged: dict[str, DamagedEntry] = {}
        strangers: list[str] = []
        with self._translated(), self._listing() as listing:
            for file in listing:
                if file.name not in self._cache and not _is_entry(file.name):
                    if not temporary_for(file.name):
                        strangers.append(file.name)
                    continue
                uid = file.name.removesuffix(_SUFFIX)
                try:
                    found = self._load(uid, file.stat(follow_symlinks=False))
                except FileNotFoundError:  # unprepared since it was listed
                    continue
                except OSError as error:  # one file that cannot be read now is one claim's trouble
                    found = DamagedEntry(Damage.UNKNOWN, f"{file.path}: {error.strerror}")
                if isinstance(found, DamagedEntry):
                    damaged[uid] = found
                else:
                    entries[uid] = found
        for name in list(self._cache):
            if name.removesuffix(_SUFFIX) not in entries:
                self._cache.pop(name, None)
        return JournalScan(entries=entries, damaged=damaged, strangers=tuple(strangers))

    def write(self, claim: PreparedClaim) -> None:
        """Record, durably. The caller holds the claim's lock. Raises Broken."""
        check_uid(claim.ref.uid)
        with self._translated():
            write_atomically(self._directory / f"{claim.ref.uid}{_SUFFIX}", encode(claim), mode=0o600)

    def remove(self, uid: str) -> bool:
        """Forget, durably; False when there was nothing. The caller holds the claim's lock. Raises Broken."""
        check_uid(uid)
        with self._translated():
            return remove_durably(self._directory / f"{uid}{_SUFFIX}")

    def set_aside(self, uid: str, damage: Damage) -> Path:
        """Move the claim's damaged file out of the way and say where it is now. The caller holds the claim's lock. Raises Broken."""
        return self._move_aside(f"{uid}{_SUFFIX}", damage)

    def set_aside_stranger(self, name: str) -> Path:
        """Move a file out of the way that is no claim's. Raises Broken."""
        return self._move_aside(name, Damage.UNKNOWN)

    def leftovers(self) -> dict[str, str]:
        """Temporary files that killed writers left, by name, with the UID they were for. Raises Broken."""
        with self._translated():
            finals = {path.name: temporary_for(path.name) for path in self._directory.glob(".*.tmp")}
        return {name: final.removesuffix(_SUFFIX) for name, final in finals.items() if final}

    def remove_leftover(self, name: str) -> None:
        """Delete a temporary file. The caller holds the lock of the claim it was for. Raises Broken."""
        with self._translated():
            (self._directory / name).unlink(missing_ok=True)

    def _listing(self) -> contextlib.AbstractContextManager[Iterator[os.DirEntry[str]]]:
        try:
            return os.scandir(self._directory)
        except FileNotFoundError:  # somebody removed it under us; the CDI files still tell what is held
            self.create_directories()
            return os.scandir(self._directory)

    def _move_aside(self, name: str, damage: Damage) -> Path:
        target = self._set_aside / f"{name}.{damage}.{time.time_ns()}"
        with self._translated():
            self._set_aside.mkdir(mode=0o700, exist_ok=True)
            (self._directory / name).rename(target)
            sync_directory(self._set_aside)
            sync_directory(self._directory)
        return target

    def _load(self, uid: str, state: os.stat_result) -> PreparedClaim | DamagedEntry:
        signature = (state.st_ino, state.st_mtime_ns, state.st_size)
        name = f"{uid}{_SUFFIX}"
        cached = self._cache.get(name)
        if cached is not None and cached[0] == signature:
            return cached[1]
        try:
            found = self._decoded(uid)
        except DamagedEntry as error:
            return error  # not remembered: what could not be read now may be readable later
        self._cache[name] = (signature, found)
        return found

    def _decoded(self, uid: str) -> PreparedClaim:
        path = self._path(uid)
        try:
            with open(path, "rb", opener=_without_waiting) as file:
                claim = decode(file.read())
        except OSError as error:
            if error.errno in _NO_FILE:
                raise DamagedEntry(Damage.UNKNOWN, f"{path}: {error.strerror}") from error
            raise  # it may be sound, and readable later
        except DamagedEntry as error:
            raise DamagedEntry(error.damage, f"{path}: {error}") from error
        if claim.ref.uid != uid:
            raise DamagedEntry(Damage.UNKNOWN, f"{path}: holds the record of claim {claim.ref}")
        return claim

    def _path(self, uid: str) -> str:
        return f"{self._directory}/{uid}{_SUFFIX}"

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            where = error.filename or self._directory
            raise Broken(
                f"journal: {where}: {error.strerror or error}; the plugin's directory must be writable and have room"
            ) from error


def _is_entry(name: str) -> bool:
    if not name.endswith(_SUFFIX):
        return False
    try:
        check_uid(name.removesuffix(_SUFFIX))
    except Refused:
        return False
    return True


def _without_waiting(path: str, flags: int) -> int:
    """A FIFO in a record's place must not hold a claim up for ever."""
    return os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)
