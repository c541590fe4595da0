"""A time limit measured by our `Clock`, which `asyncio.timeout` alone cannot do."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from gpu_dra.core.clock import Clock

T = TypeVar("T")


async def within(seconds: float, work: Awaitable[T], *, clock: Clock) -> T:
    """What `work` gives. Raises TimeoutError after `seconds` of `clock`, having cancelled it."""
    async with asyncio.timeout(None) as limit:
        alarm = asyncio.ensure_future(_ring(seconds, limit, clock))
        try:
            result = await work
        finally:
            alarm.cancel()
    return result


async def _ring(seconds: float, limit: asyncio.Timeout, clock: Clock) -> None:
    await clock.sleep(seconds)
    limit.reschedule(asyncio.get_running_loop().time())
