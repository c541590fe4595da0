"""A limit on our clock cancels what takes too long, and only that."""

import asyncio

import pytest

from gpu_dra.core.clock import FakeClock
from gpu_dra.kube.waiting import within


async def _forever(ended):
    try:
        await asyncio.Event().wait()
    finally:
        ended.append(True)


async def test_work_that_takes_too_long_is_cancelled():
    clock, ended = FakeClock(), []
    waiting = asyncio.ensure_future(within(10, _forever(ended), clock=clock))
    await clock.advance(9)
    assert not ended
    await clock.advance(2)
    with pytest.raises(TimeoutError):
        await waiting
    assert ended


async def test_work_that_is_done_gives_its_result_without_time_passing():
    async def work():
        return "done"

    assert await within(10, work(), clock=FakeClock()) == "done"


async def test_a_cancelled_waiter_is_cancelled_and_not_timed_out():
    clock, ended = FakeClock(), []
    waiting = asyncio.ensure_future(within(10, _forever(ended), clock=clock))
    await clock.settle()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert ended
