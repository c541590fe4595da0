"""A call that hangs costs its GPU, not the event loop, not other work, not the end of the process."""

from __future__ import annotations

import asyncio
import threading

import pytest

from gpu_dra.hardware.fake import Fault
from gpu_dra.hardware.nvml_errors import NvmlError
from gpu_dra.hardware.worker import CallHung, NvmlWorker

DEADLINE = 0.05


@pytest.fixture
def worker(nvml):
    nvml.open()
    worker = NvmlWorker(nvml, deadline=DEADLINE)
    yield worker
    nvml.clear()
    worker.close()


@pytest.fixture
def hang(nvml):
    """GPU 3's memory query hangs until the event is set."""
    return nvml.order(Fault("memory_bytes", gpu=3, hang=threading.Event())).hang


def ask(index):
    return lambda nvml: nvml.memory_bytes(nvml.gpu(index))


async def until(condition, within=5.0):
    async with asyncio.timeout(within):
        while not condition():  # noqa: ASYNC110 - a thread, not a task, makes it true
            await asyncio.sleep(0.005)


async def test_work_runs_and_its_errors_reach_the_caller(nvml, worker):
    assert await worker.run(lambda nvml: nvml.gpu_count()) == 8
    nvml.order(Fault("uuid", code=999, gpu=0))
    with pytest.raises(NvmlError):
        await worker.run(lambda nvml: nvml.uuid(nvml.gpu(0)))


async def test_a_hung_call_names_its_method_and_its_gpu(worker, hang):
    with pytest.raises(CallHung, match="memory_bytes") as raised:
        await worker.run(ask(3))
    assert raised.value.gpu_index == 3


async def test_other_gpus_are_served_while_one_hangs(worker, hang):
    with pytest.raises(CallHung):
        await worker.run(ask(3))
    assert await worker.run(ask(4)) > 0
    assert set(worker.hung()) == {3}


async def test_a_gpu_is_trusted_again_once_its_call_has_returned(worker, hang):
    with pytest.raises(CallHung):
        await worker.run(ask(3))
    hang.set()
    await until(lambda: not worker.hung())
    assert await worker.run(ask(3)) > 0


async def test_abandoned_work_makes_no_further_call(nvml, worker, hang):
    """The old thread must not go on beside the new one."""
    later = []

    def work(nvml):
        nvml.memory_bytes(nvml.gpu(3))
        later.append(nvml.gpu_count())

    with pytest.raises(CallHung):
        await worker.run(work)
    hang.set()
    await until(lambda: not worker.hung())
    assert later == []


async def test_the_deadline_is_of_a_call_and_not_of_the_work(worker):
    def slow_work(nvml):
        for _ in range(30):
            nvml.gpu_count()
            threading.Event().wait(0.005)
        return "done"

    assert await worker.run(slow_work) == "done"


async def test_a_call_about_the_node_hangs_under_no_gpus_name(nvml, worker):
    nvml.order(Fault("gpu_count", hang=threading.Event()))
    with pytest.raises(CallHung) as raised:
        await worker.run(lambda nvml: nvml.gpu_count())
    assert raised.value.gpu_index is None


async def test_a_cancelled_caller_leaves_a_worker_that_works(nvml, worker, hang):
    task = asyncio.create_task(worker.run(ask(3)))
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    second = asyncio.create_task(worker.run(ask(4)))
    await asyncio.sleep(0.01)
    assert not second.done()  # the first call is still inside NVML
    assert await second > 0
    assert 3 in worker.hung()
