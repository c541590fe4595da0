"""Long-lived work goes on whatever happens to it."""

import asyncio
import contextlib

import pytest

from gpu_dra.core.clock import FakeClock
from gpu_dra.core.errors import NotReady
from gpu_dra.core.tasks import supervise


async def runs_of(failure, *, until):
    """How often work that ends by `failure` was begun."""
    clock, begun = FakeClock(), []

    async def work():
        begun.append(None)
        await asyncio.sleep(0)
        raise failure

    task = asyncio.create_task(supervise("work", work, clock=clock))
    while len(begun) < until and not task.done():
        await clock.advance(60)
        await asyncio.sleep(0)
    still_there = not task.done()
    task.cancel()
    with contextlib.suppress(BaseException):
        await task
    return len(begun), still_there


@pytest.mark.parametrize("failure", [NotReady("later"), RuntimeError("a defect"), asyncio.CancelledError()])
async def test_what_fails_is_begun_again(failure):
    """A cancellation that is not the task's own comes from a future that somebody else gave up."""
    begun, still_there = await runs_of(failure, until=3)
    assert begun >= 3
    assert still_there


async def test_its_own_cancellation_ends_it():
    task = asyncio.create_task(supervise("work", asyncio.Event().wait, clock=FakeClock()))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
