"""Blocking work beside the event loop."""

import asyncio
import contextvars
import threading

import pytest

from gpu_dra.claims.threads import Threads

FACT = contextvars.ContextVar("FACT", default="nothing")


@pytest.fixture
def threads():
    threads = Threads()
    yield threads
    threads.close()


async def test_work_that_has_not_begun_is_dropped_with_its_caller(threads):
    gate, done = threading.Event(), []
    busy = [asyncio.create_task(threads.run(gate.wait)) for _ in range(8)]
    await asyncio.sleep(0)
    late = asyncio.create_task(threads.run(done.append, 1))
    await asyncio.sleep(0)
    late.cancel()
    with pytest.raises(asyncio.CancelledError):
        await late
    gate.set()
    await asyncio.gather(*busy)
    assert done == []


async def test_work_knows_what_its_caller_bound_to_log_lines(threads):
    FACT.set("claim-1")
    assert await threads.run(FACT.get) == "claim-1"
