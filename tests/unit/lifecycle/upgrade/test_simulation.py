"""Whatever happens in between, an upgrade keeps its promises and ends; each seed is another story."""

import os

import pytest

from gpu_dra.lifecycle.upgrade.view import State
from tests.unit.lifecycle.upgrade.world import World

SEEDS = int(os.environ.get("GPU_DRA_SEEDS", "500"))
CHUNK = 50


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_an_upgrade_keeps_its_promises_and_ends(first):
    """The world checks the promises as it goes: budgets, cordons of others, no driver exchanged under a pod, legal steps."""
    for seed in range(first, min(first + CHUNK, SEEDS)):
        world = World(seed)
        for _ in range(20):
            world.tick()
        world.wanted = "v2"
        for _ in range(world.chance.randint(0, 150)):
            world.tick()
        world.become_calm()
        assert world.comes_to_rest(within=60 + 150 * len(world.nodes)), f"seed {seed}: never ends"
        for node in world.nodes:
            told = f"seed {seed}, {node}"
            broken = node.bad | node.dud
            if node.record.state is State.DONE:
                assert node.assigned == "v2", told
                assert node.works, told
                assert not node.mark, told
            elif node.record.state is State.FAILED:
                assert "v2" in broken, told
                assert "v2 does not work here" in node.record.message, told
                if world.policy.roll_back:
                    assert node.assigned == "v1", told
                    assert node.works, told
                    assert not node.mark, told
            else:
                assert node.record.state is State.REQUIRED, told
                message = node.record.message
                out = "are out" in message and not world.policy.roll_back  # a node that failed for good stays out
                assert out or "stopped after" in message or "canary" in message, told
                assert node.works, told
                assert not node.unschedulable, told
