"""The tests' own guard: product code that blocks the event loop is found."""

import asyncio

import pytest
from blockbuster import BlockingError

from gpu_dra.core.files import remove_durably


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "file"
    path.touch()
    return path


async def test_what_blocks_the_event_loop_fails(file):
    with pytest.raises(BlockingError, match=r"os\.unlink"):
        remove_durably(file)


async def test_what_blocks_a_thread_of_its_own_does_not(file):
    assert await asyncio.to_thread(remove_durably, file)


def test_what_blocks_outside_of_any_event_loop_does_not(file):
    assert remove_durably(file)
