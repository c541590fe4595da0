"""A time limit measured by our `Clock`, which `asyncio.timeout` cannot do."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from typing import Any

    from gpu_dra.core.clock import Clock

T = TypeVar("T")


async def within(seconds: float, work: Coroutine[Any, Any, T], *, clock: Clock) -> T:
    """What `work` gives. Raises TimeoutError after `seconds` of `clock`; `work` has been cancelled and has ended by then."""
    working = asyncio.ensure_future(work)
    alarm = asyncio.ensure_future(clock.sleep(seconds))
    try:
        await asyncio.wait({working, alarm}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        raise TimeoutError(f"nothing for {seconds:g} s")
    finally:
        working.cancel()
        alarm.cancel()
        await asyncio.gather(working, alarm, return_exceptions=True)
