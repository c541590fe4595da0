"""Side effects are recorded before they are made, and undone on every path."""

import pytest

from gpu_dra.core.errors import Broken, Conflict, NotReady
from gpu_dra.model.prepared import Phase


async def test_side_effects_are_made_in_order_and_undone_with_the_claim(node):
    effects = node.with_effects()
    claim = node.allocate(1, "gpu-0", "gpu-1")
    answer = await node.manager.prepare(claim)
    assert [effect.data["name"] for effect in answer.effects] == ["gpu-0", "gpu-1"]
    assert effects.made() == {"gpu-0", "gpu-1"}
    await node.manager.unprepare(claim)
    assert node.holds_nothing()


async def test_admin_access_changes_nothing_on_the_device(node):
    effects = node.with_effects()
    await node.manager.prepare(node.allocate(1, "gpu-0", adminAccess=True))
    assert effects.made() == set()


async def test_effects_made_before_a_failure_are_undone(node):
    effects = node.with_effects()
    effects.fail_apply = "gpu-1"
    with pytest.raises(NotReady, match="gpu-1 is busy"):
        await node.manager.prepare(node.allocate(1, "gpu-0", "gpu-1"))
    assert node.holds_nothing()


async def test_what_could_not_be_undone_stays_recorded_and_holds_the_device(node):
    effects = node.with_effects()
    effects.fail_apply, effects.fail_undo = "gpu-1", "gpu-0"
    claim = node.allocate(1, "gpu-0", "gpu-1")
    with pytest.raises(NotReady, match="gpu-1 is busy"):
        await node.manager.prepare(claim)
    with pytest.raises(Conflict):
        await node.manager.prepare(node.allocate(2, "gpu-0"))
    effects.fail_apply = effects.fail_undo = None
    assert (await node.manager.prepare(claim)).phase is Phase.DONE


async def test_an_unprepare_that_cannot_undo_fails_and_goes_on_later(node):
    effects = node.with_effects()
    claim = node.allocate(1, "gpu-0")
    await node.manager.prepare(claim)
    effects.fail_undo = "gpu-0"
    with pytest.raises(NotReady, match="gpu-0 is busy"):
        await node.manager.unprepare(claim)
    effects.fail_undo = None
    await node.manager.unprepare(claim)
    assert node.holds_nothing()


async def test_after_a_reboot_recorded_effects_are_made_again(node):
    effects = node.with_effects()
    claim = node.allocate(1, "gpu-0")
    await node.manager.prepare(claim)
    (node.directory / "effects/gpu-0").unlink()
    node.reboot()
    await node.manager.prepare(claim)
    assert effects.made() == {"gpu-0"}


async def test_effects_of_a_newer_version_are_not_forgotten_by_an_older_one(node):
    """After a downgrade the record must wait for the version that can undo it."""
    node.with_effects()
    claim = node.allocate(1, "gpu-0")
    await node.manager.prepare(claim)
    node.effects = None
    node.start()
    with pytest.raises(Broken, match="this version does not know"):
        await node.manager.unprepare(claim)
    assert node.journal_file(1).exists()
