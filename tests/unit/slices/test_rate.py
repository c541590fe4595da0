"""How often a node may change its slices."""

import pytest

from gpu_dra.core.clock import FakeClock
from gpu_dra.slices.rate import ChangeBudget


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def budget(clock):
    return ChangeBudget(clock)


def spend(budget, times):
    for _ in range(times):
        budget.spend()


def test_five_changes_are_free(budget):
    spend(budget, 4)
    assert budget.seconds_to_wait() == 0


def test_the_sixth_waits_two_seconds(budget):
    spend(budget, 5)
    assert budget.seconds_to_wait() == 2.0


async def test_waiting_as_told_is_enough(clock, budget):
    spend(budget, 5)
    await clock.advance(0.7)
    await clock.advance(budget.seconds_to_wait())
    assert budget.seconds_to_wait() == 0


async def test_a_long_rest_gives_back_the_burst_and_no_more(clock, budget):
    spend(budget, 5)
    await clock.advance(3600)
    spend(budget, 5)
    assert budget.seconds_to_wait() == 2.0
