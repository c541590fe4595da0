"""Many calls at a time, late ones and cancelled ones."""

import asyncio

import pytest

from gpu_dra.core.errors import Conflict, NotReady
from gpu_dra.kube.errors import NotFound
from tests.unit.claims.samples import gpu, inventory, ref, uid


async def until(condition):
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - conditions are set by threads
            await asyncio.sleep(0.001)


async def test_no_claim_waits_for_another_claims_device(node):
    gate = node.builder.block("gpu-0")
    slow = asyncio.create_task(node.manager.prepare(node.allocate(1, "gpu-0")))
    await until(node.builder.waiting.is_set)
    assert await node.manager.prepare(node.allocate(2, "gpu-1"))
    assert not slow.done()
    gate.set()
    assert await slow


async def test_two_claims_on_one_device_at_the_same_moment_never_both_get_it(node):
    claims = [node.allocate(number, "gpu-0") for number in range(8)]
    answers = await asyncio.gather(*map(node.manager.prepare, claims), return_exceptions=True)
    assert sum(not isinstance(answer, Exception) for answer in answers) == 1
    assert {type(answer) for answer in answers if isinstance(answer, Exception)} == {Conflict}


async def test_one_bad_claim_does_not_disturb_another(node):
    good, bad = node.allocate(1, "gpu-0"), ref(2)
    answers = await asyncio.gather(node.manager.prepare(good), node.manager.prepare(bad), return_exceptions=True)
    assert answers[0].devices
    assert isinstance(answers[1], NotFound)


async def test_the_same_claim_asked_for_twice_at_once_is_prepared_once(node):
    claim = node.allocate(1, "gpu-0")
    first, second = await asyncio.gather(node.manager.prepare(claim), node.manager.prepare(claim))
    assert first == second
    assert node.builder.builds == 1


async def test_an_unprepare_that_overtakes_a_slow_prepare_still_has_the_last_word(node):
    """The kubelet gave up on the prepare, deleted the pod and unprepares; the late prepare must not keep the device."""
    gate = node.builder.block("gpu-0")
    claim = node.allocate(1, "gpu-0")
    late = asyncio.create_task(node.manager.prepare(claim))
    await until(node.builder.waiting.is_set)
    unprepare = asyncio.create_task(node.manager.unprepare(claim))
    late.cancel()
    gate.set()
    await unprepare
    with pytest.raises(asyncio.CancelledError):
        await late
    assert node.holds_nothing()


async def test_a_cancelled_prepare_keeps_its_locks_until_its_work_has_ended(node):
    gate = node.builder.block("gpu-0")
    late = asyncio.create_task(node.manager.prepare(node.allocate(1, "gpu-0")))
    await until(node.builder.waiting.is_set)
    late.cancel()
    late.cancel()
    other = asyncio.create_task(node.manager.prepare(node.allocate(2, "gpu-0")))
    await until(lambda: node.api.reads == 2)
    assert node.manager.is_busy(uid(1))
    gate.set()
    with pytest.raises(Conflict):
        await other


async def test_the_deadline_is_ours_and_not_the_kubelets(node):
    gate = node.builder.block("gpu-0")
    slow = asyncio.create_task(node.manager.prepare(node.allocate(1, "gpu-0")))
    await until(node.builder.waiting.is_set)
    node.start(deadline=0.05)
    with pytest.raises(NotReady, match=r"device-gpu-0\.lock was not free within"):
        await node.manager.prepare(node.allocate(2, "gpu-0"))
    gate.set()
    await slow


async def test_a_burst_leaves_one_record_each_and_then_nothing(node):
    node.inventories.current = inventory(*(gpu(minor) for minor in range(64)))
    claims = [node.allocate(number, f"gpu-{number}") for number in range(64)]
    await asyncio.gather(*map(node.manager.prepare, claims))
    assert len(await node.manager.recorded()) == 64
    await asyncio.gather(*map(node.manager.unprepare, claims))
    assert node.holds_nothing()


async def test_two_plugin_processes_that_overlap_in_an_update_never_both_give_a_device_away(node):
    """The kubelet may call either; a second room on the same directory shares nothing with the first but files."""
    node.start()
    old, new = (room.manager for room in node.rooms)
    claims = [node.allocate(number, "gpu-0") for number in range(8)]
    calls = ((old if number % 2 else new).prepare(claim) for number, claim in enumerate(claims))
    answers = await asyncio.gather(*calls, return_exceptions=True)
    assert sum(not isinstance(answer, Exception) for answer in answers) == 1


async def test_a_claim_asked_for_at_both_processes_is_prepared_once_and_unprepared_by_either(node):
    node.start()
    old, new = (room.manager for room in node.rooms)
    claim = node.allocate(1, "gpu-0")
    first, second = await asyncio.gather(old.prepare(claim), new.prepare(claim))
    assert first == second
    assert node.builder.builds == 1
    await new.unprepare(claim)
    await old.unprepare(claim)
    assert node.holds_nothing()
