"""Time as a dependency, so that tests own it."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import time
from typing import Protocol


class Clock(Protocol):
    """What rooms ask of time."""

    def monotonic(self) -> float:
        """Seconds that never go back."""
        ...

    def wall(self) -> float:
        """Unix time in seconds."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait without blocking the loop."""
        ...


class SystemClock:
    """The machine's time."""

    def monotonic(self) -> float:
        """Seconds that never go back."""
        return time.monotonic()

    def wall(self) -> float:
        """Unix time in seconds."""
        return time.time()

    async def sleep(self, seconds: float) -> None:
        """Wait without blocking the loop."""
        await asyncio.sleep(seconds)


class FakeClock:
    """Time that moves only by `advance`; sleepers wake in order."""

    def __init__(self, *, start: float = 1_800_000_000.0) -> None:
        self._now = start
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._order = itertools.count()

    def monotonic(self) -> float:
        """Seconds since an arbitrary start."""
        return self._now

    def wall(self) -> float:
        """The same counter, read as Unix time."""
        return self._now

    async def sleep(self, seconds: float) -> None:
        """Wait until `advance` has moved time on by `seconds`."""
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._now + seconds, next(self._order), future))
        await future

    async def advance(self, seconds: float) -> None:
        """Move time on, waking each sleeper at its moment and letting it run before the next wakes."""
        await self.settle()
        target = self._now + seconds
        while self._sleepers and self._sleepers[0][0] <= target:
            self._now, _, future = heapq.heappop(self._sleepers)
            if not future.done():
                future.set_result(None)
            await self.settle()
        self._now = target
        await self.settle()

    async def settle(self, rounds: int = 20) -> None:
        """Let everything that is ready run."""
        for _ in range(rounds):
            await asyncio.sleep(0)
