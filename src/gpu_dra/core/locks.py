"""Locks that hold between coroutines of one process and between two processes that overlap in a rolling update.

`flock` dies with its process, so a lock is never left behind by a crash and a lock that is held means a living holder. Locks of
things that come and go (claims) are temporary: their file is removed on release, and whoever waited on the removed file opens anew.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from gpu_dra.core.errors import Broken, NotReady

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Iterator

_FIRST_POLL = 0.001
_LAST_POLL = 0.02


class LockDirectory:
    """Named locks, one file each, in one directory, which the first lock makes: for root alone, since whoever opens a lock can hold it."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._local: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    @contextlib.asynccontextmanager
    async def hold(self, names: Iterable[str], *, within: float, temporary: bool = False) -> AsyncIterator[None]:
        """Hold all `names` at once; taken in sorted order, so that two holders never wait for each other.

        Within the process waiters queue in order; another process's lock is polled. `temporary` removes the files on release. Raises
        NotReady after `within` seconds, Broken when the directory cannot be used.
        """
        async with contextlib.AsyncExitStack() as stack:
            try:
                async with asyncio.timeout(within):
                    for name in sorted(set(names)):
                        await stack.enter_async_context(self._local.setdefault(name, asyncio.Lock()))
                        descriptor = await self._flock(name)
                        stack.callback(os.close, descriptor)
                        if temporary:
                            stack.callback(self._unlink, name)
            except TimeoutError as error:
                raise NotReady(f"lock {self._path(name)} was not free within {within:g} s; retrying later") from error
            yield

    def is_held_elsewhere(self, name: str) -> bool:
        """True when a living holder, here or in another process, has the lock now."""
        try:
            descriptor = os.open(self._path(name), os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            return not _try_flock(descriptor)
        finally:
            os.close(descriptor)

    def try_hold(self, name: str) -> int | None:
        """Take the lock for as long as the returned descriptor stays open; None when another process has it."""
        while True:
            descriptor = self._open(name)
            if not _try_flock(descriptor):
                os.close(descriptor)
                return None
            if not _is_removed(descriptor):
                return descriptor
            os.close(descriptor)

    @contextlib.contextmanager
    def trying(self, name: str) -> Iterator[bool]:
        """Hold the lock for the block if nobody has it; the block learns whether it does."""
        descriptor = self.try_hold(name)
        try:
            yield descriptor is not None
        finally:
            if descriptor is not None:
                os.close(descriptor)

    def sweep(self, prefix: str) -> None:
        """Remove the files of temporary locks that killed processes left; `prefix` starts their names."""
        for name in self.names(prefix):
            with self.trying(name) as held:
                if held:
                    self._unlink(name)

    def names(self, prefix: str = "") -> list[str]:
        """Every lock that has a file now, held or not."""
        return sorted(path.stem for path in self._directory.glob(f"{prefix}*.lock") if path.is_file())

    def remove(self, name: str) -> None:
        """Delete a lock's file. The caller holds the lock."""
        self._unlink(name)

    async def _flock(self, name: str) -> int:
        descriptor = self._open(name)
        pause = _FIRST_POLL
        try:
            while not _try_flock(descriptor):
                await asyncio.sleep(pause)
                pause = min(pause * 2, _LAST_POLL)
        except BaseException:
            os.close(descriptor)
            raise
        if _is_removed(descriptor):  # its last holder removed the file while we waited; newcomers lock another one
            os.close(descriptor)
            return await self._flock(name)
        return descriptor

    def _open(self, name: str) -> int:
        try:
            try:
                return os.open(self._path(name), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            except FileNotFoundError:  # the first lock of all, or somebody removed the directory under us
                self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
                return os.open(self._path(name), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise Broken(
                f"cannot open lock {self._path(name)}: {error.strerror}; the plugin's directory must be writable"
            ) from error

    def _unlink(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            Path(self._path(name)).unlink()

    def _path(self, name: str) -> str:
        return f"{self._directory}/{name}.lock"


def _try_flock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_removed(descriptor: int) -> bool:
    return os.fstat(descriptor).st_nlink == 0
