"""Long-lived tasks that report what broke and carry on."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from gpu_dra.core.backoff import Backoff
from gpu_dra.core.errors import GpuDraError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from gpu_dra.core.clock import Clock

log = logging.getLogger(__name__)


async def supervise(name: str, work: Callable[[], Awaitable[None]], *, clock: Clock) -> None:
    """Run `work` for ever: start it again, with back-off, whenever it ends or fails. Ends only by cancellation."""
    backoff = Backoff()
    while True:
        started = clock.monotonic()
        try:
            await work()
        except asyncio.CancelledError:
            if (task := asyncio.current_task()) is None or task.cancelling():
                raise
            log.warning("task was given up by something it waited for, starting it again", extra={"task": name})
        except GpuDraError as error:
            log.warning("task failed, starting it again", extra={"task": name, "error": str(error)})
        except Exception:
            log.exception("task failed unexpectedly, starting it again", extra={"task": name})
        if clock.monotonic() - started > backoff.most:
            backoff.reset()
        await clock.sleep(backoff.next())
