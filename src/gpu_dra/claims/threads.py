"""Blocking work off the event loop, to its end once it has begun.

A caller that is cancelled (the kubelet gave up, our deadline passed) still waits for a piece of work that has begun, because the locks it
holds guard that work: with the locks free and the thread still writing, an unprepare could pass a prepare. Work that still waits for a
thread is dropped with its caller.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

# Enough that some claims stuck on a slow disk leave room for others; few enough that they do not fight for the interpreter.
_WORKERS = 8


class Threads:
    """Threads of the claims room alone; a hung NVML call or a slow resolver elsewhere takes none of them."""

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(max_workers=_WORKERS, thread_name_prefix="claims")

    async def run(self, work: Callable[Arguments, Result], *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        """The result of `work`; cancellation is passed on only after it has ended."""
        context = contextvars.copy_context()  # log lines of the work carry the claim
        begun = self._executor.submit(context.run, lambda: work(*args, **kwargs))
        future = asyncio.wrap_future(begun)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            if begun.cancel():
                raise
            while not future.done():
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.wait([future])
            future.exception()  # seen: it belongs to a caller who has gone
            raise

    def close(self) -> None:
        """Let the threads end with their current work."""
        self._executor.shutdown(wait=False)
