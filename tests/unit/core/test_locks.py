"""Locks between coroutines and between processes."""

import asyncio
import os
import stat

import pytest

from gpu_dra.core.errors import Broken, NotReady
from gpu_dra.core.locks import LockDirectory


@pytest.fixture
def locks(tmp_path):
    return LockDirectory(tmp_path)


@pytest.fixture
def other(tmp_path):
    """The other process of a rolling update; a lock belongs to an open file, so a second directory object is as good."""
    return LockDirectory(tmp_path)


async def test_a_held_lock_keeps_others_out_until_it_is_free(locks, other):
    async with locks.hold(["a"], within=1):
        assert other.is_held_elsewhere("a")
        with pytest.raises(NotReady, match=r"a\.lock was not free within"):
            async with other.hold(["a"], within=0.01):
                pass
    async with other.hold(["a"], within=1):
        assert locks.is_held_elsewhere("a")


async def test_holders_of_several_locks_never_wait_for_each_other(locks):
    async def hold(*names):
        async with locks.hold(names, within=5):
            await asyncio.sleep(0)

    await asyncio.gather(*(hold("a", "b") if number % 2 else hold("b", "a") for number in range(20)))


async def test_a_temporary_lock_leaves_no_file(locks, tmp_path):
    async with locks.hold(["a"], within=1, temporary=True):
        assert list(tmp_path.iterdir())
    assert not list(tmp_path.iterdir())


async def test_temporary_locks_exclude_each_other_although_their_file_goes(locks, other):
    """A waiter may get the lock of a file that was just removed, which newcomers would not see."""
    inside = 0

    async def work(directory):
        nonlocal inside
        for _ in range(20):
            async with directory.hold(["a"], within=10, temporary=True):
                inside += 1
                await asyncio.sleep(0)
                assert inside == 1
                inside -= 1

    await asyncio.gather(*map(work, (locks, other, locks, other)))


async def test_to_ask_whether_a_lock_is_held_makes_no_file(locks, tmp_path):
    assert not locks.is_held_elsewhere("a")
    assert not list(tmp_path.iterdir())


def test_a_sweep_removes_what_dead_holders_left_and_nothing_else(locks, other, tmp_path):
    for name in ("claim-dead", "claim-alive", "device-gpu-0"):
        (tmp_path / f"{name}.lock").touch()
    descriptor = other.try_hold("claim-alive")
    locks.sweep("claim-")
    os.close(descriptor)
    assert {path.name for path in tmp_path.iterdir()} == {"claim-alive.lock", "device-gpu-0.lock"}


async def test_locks_of_the_past_take_no_memory(locks):
    for number in range(50):
        async with locks.hold([f"claim-{number}"], within=1, temporary=True):
            pass
    assert len(locks._local) == 0


async def test_a_directory_that_cannot_be_used_is_reported_with_a_way_out(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(Broken, match="must be writable"):
        async with LockDirectory(tmp_path / "file").hold(["a"], within=1):
            pass


async def test_the_first_lock_makes_the_directory_for_root_alone(tmp_path):
    """Whoever can open a lock's file can hold it, and keep the plugin waiting."""
    async with LockDirectory(tmp_path / "locks").hold(["a"], within=1):
        assert stat.S_IMODE((tmp_path / "locks").stat().st_mode) == 0o700


def test_a_directory_without_any_lock_yet_has_none(tmp_path):
    locks = LockDirectory(tmp_path / "locks")
    locks.sweep("claim-")
    assert locks.names() == []
    assert not locks.is_held_elsewhere("a")
