"""Locks that hold between coroutines of one process and between two processes that overlap in a rolling update.

`flock` dies with its process, so a lock is never left behind by a crash and a lock that is held means a living holder.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
from typing import TYPE_CHECKING

from gpu_dra.core.errors import NotReady

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable
    from pathlib import Path

_FIRST_POLL = 0.001
_LAST_POLL = 0.02


class LockDirectory:
    """Named locks, one file each, in one directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._local: dict[str, asyncio.Lock] = {}

    @contextlib.asynccontextmanager
    async def hold(self, names: Iterable[str], *, within: float) -> AsyncIterator[None]:
        """Hold all `names` at once; taken in sorted order, so that two holders never wait for each other.

        Within the process waiters queue in order; another process's lock is polled. Raises NotReady after `within` seconds.
        """
        async with contextlib.AsyncExitStack() as stack:
            try:
                async with asyncio.timeout(within):
                    for name in sorted(set(names)):
                        await stack.enter_async_context(self._local.setdefault(name, asyncio.Lock()))
                        stack.callback(os.close, await self._flock(name))
            except TimeoutError as error:
                raise NotReady(f"lock {self._directory / name} was not free within {within:g} s; retrying later") from error
            yield

    def is_held_elsewhere(self, name: str) -> bool:
        """True when a living holder, here or in another process, has the lock now."""
        descriptor = self._open(name)
        try:
            return not _try_flock(descriptor)
        finally:
            os.close(descriptor)

    def try_hold(self, name: str) -> int | None:
        """Take the lock for as long as the returned descriptor stays open; None when another process has it."""
        descriptor = self._open(name)
        if _try_flock(descriptor):
            return descriptor
        os.close(descriptor)
        return None

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
        return descriptor

    def _open(self, name: str) -> int:
        return os.open(self._directory / f"{name}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _try_flock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
