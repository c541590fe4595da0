"""What the node holds, brought in line with the API."""

import shutil

import pytest

from gpu_dra.core.errors import Conflict, NotReady
from gpu_dra.core.locks import LockDirectory
from gpu_dra.kube.errors import Forbidden, Unavailable
from gpu_dra.model.prepared import Phase
from tests.unit.claims.samples import claim, gpu, inventory, ref, result, uid

GRACE = 600


async def after_the_grace(node):
    await node.reconciler.run_once()
    await node.clock.advance(GRACE)
    await node.reconciler.run_once()


@pytest.fixture
async def held(node):
    """A prepared claim that the API knows."""
    await node.manager.prepare(node.allocate(1, "gpu-0"))
    return node


async def test_a_claim_that_the_api_knows_is_left_alone(held):
    await after_the_grace(held)
    assert held.specs.exists_intact(uid(1))


async def test_what_a_running_pod_lost_is_restored_without_the_kubelet(held):
    """A container that restarts inside its sandbox reads the CDI file again, and no prepare comes before that."""
    held.cdi_file(1).unlink()
    await held.reconciler.run_once()
    assert held.specs.exists_intact(uid(1))


async def test_a_claim_that_is_gone_frees_its_device_after_the_grace(held):
    """Pod and claim were force-deleted while the plugin was down; nobody will call unprepare."""
    held.delete(1)
    await after_the_grace(held)
    assert held.holds_nothing()
    assert await held.manager.prepare(held.allocate(2, "gpu-0"))


async def test_within_the_grace_nothing_is_touched(held):
    held.delete(1)
    await held.reconciler.run_once()
    await held.clock.advance(GRACE - 1)
    await held.reconciler.run_once()
    assert held.specs.exists_intact(uid(1))


async def test_the_grace_starts_anew_when_the_claim_was_there_in_between(held):
    """A view that flickers is not evidence."""
    object_ = held.api.claims["claim-1"]
    held.delete(1)
    await held.reconciler.run_once()
    held.api.put(object_)
    await held.reconciler.run_once()
    held.delete(1)
    await held.clock.advance(GRACE)
    await held.reconciler.run_once()
    assert held.specs.exists_intact(uid(1))


async def test_another_claim_under_the_same_name_does_not_keep_the_old_one(held):
    held.api.claims["claim-1"]["metadata"]["uid"] = uid(99)
    await after_the_grace(held)
    assert held.holds_nothing()


@pytest.mark.parametrize("outage", [Unavailable("503"), Forbidden("no right to get"), NotReady("resolver")])
async def test_an_api_error_says_nothing_about_a_claim(held, outage):
    held.api.outage = outage
    await after_the_grace(held)
    assert held.specs.exists_intact(uid(1))


async def test_devices_that_a_container_still_uses_are_kept(held):
    """A force-deleted pod may go on running."""
    held.delete(1)
    held.users.user = "pid 4711"
    await after_the_grace(held)
    assert held.specs.exists_intact(uid(1))
    held.users.user = None
    await held.reconciler.run_once()
    assert held.holds_nothing()


async def test_a_claim_that_was_allocated_anew_elsewhere_is_taken_back(held):
    held.api.put(claim(1, result("gpu-0", pool="node-b")))
    await after_the_grace(held)
    assert held.holds_nothing()


async def test_a_lost_record_is_rebuilt_from_the_cdi_file_and_the_api(held):
    held.journal_file(1).unlink()
    await held.reconciler.run_once()
    entry = (await held.manager.recorded())[uid(1)]
    assert (entry.ref, entry.phase, entry.device_names) == (ref(1), Phase.DONE, {"gpu-0"})


async def test_a_damaged_record_is_set_aside_and_rebuilt_without_a_call_of_the_kubelet(held):
    held.journal_file(1).write_bytes(b"{")
    await held.reconciler.run_once()
    assert (await held.manager.recorded())[uid(1)].phase is Phase.DONE
    assert held.observed.aside == ["truncated"]


async def test_a_damaged_record_without_a_claim_goes_after_the_grace(held):
    held.journal_file(1).write_bytes(b"{")
    held.cdi_file(1).unlink()
    held.delete(1)
    await after_the_grace(held)
    assert held.holds_nothing()


async def test_an_orphan_cdi_file_of_a_gone_claim_goes_after_the_grace(held):
    held.journal_file(1).unlink()
    held.delete(1)
    await held.reconciler.run_once()
    assert held.cdi_file(1).exists()
    await held.clock.advance(GRACE)
    await held.reconciler.run_once()
    assert held.holds_nothing()


async def test_orphans_stay_while_the_api_is_away(held):
    held.journal_file(1).unlink()
    held.api.outage = Unavailable("503")
    await after_the_grace(held)
    assert held.cdi_file(1).exists()


async def test_the_list_of_all_claims_is_asked_for_only_when_something_is_unexplained(held):
    """It is a big answer on a big cluster."""
    await held.reconciler.run_once()
    assert held.api.lists == 0


async def test_an_intent_of_a_dead_process_is_finished(node):
    effects = node.with_effects()
    effects.fail_apply, effects.fail_undo = "gpu-1", "gpu-0"
    with pytest.raises(NotReady):
        await node.manager.prepare(node.allocate(1, "gpu-0", "gpu-1"))
    effects.fail_apply = effects.fail_undo = None
    await node.reconciler.run_once()
    assert (await node.manager.recorded())[uid(1)].phase is Phase.DONE
    assert effects.made() == {"gpu-0", "gpu-1"}


async def test_an_intent_whose_claim_is_gone_is_undone_after_the_grace(node):
    effects = node.with_effects()
    effects.fail_apply, effects.fail_undo = "gpu-1", "gpu-0"
    with pytest.raises(NotReady):
        await node.manager.prepare(node.allocate(1, "gpu-0", "gpu-1"))
    effects.fail_apply = effects.fail_undo = None
    node.delete(1)
    await after_the_grace(node)
    assert node.holds_nothing()


async def test_one_claim_that_cannot_be_reconciled_does_not_keep_the_others(node):
    for number in (1, 2):
        await node.manager.prepare(node.allocate(number, f"gpu-{number}"))
        node.journal_file(number).unlink()
    node.inventories.current = inventory(gpu(2))
    await node.reconciler.run_once()
    assert set(await node.manager.recorded()) == {uid(2)}


async def test_a_claim_that_a_living_process_works_on_is_left_to_it(held):
    held.delete(1)
    await held.reconciler.run_once()
    await held.clock.advance(GRACE)
    async with LockDirectory(held.plugin / "locks").hold([f"claim-{uid(1)}"], within=1):
        await held.reconciler.run_once()
    assert held.specs.exists_intact(uid(1))


async def test_files_that_are_no_claims_are_cleared_away(held):
    claims = held.plugin / "claims"
    (claims / "notes.txt").write_text("hello")
    (claims / f".{uid(5)}.json.0badcafe.tmp").write_text("half")
    (held.cdi / f".{held.cdi_file(5).name}.0badcafe.tmp").write_text("half")
    (held.plugin / "locks" / f"claim-{uid(5)}.lock").touch()
    await held.reconciler.run_once()
    assert {path.name for path in claims.iterdir()} == {f"{uid(1)}.json"}
    assert {path.name for path in held.cdi.iterdir()} == {held.cdi_file(1).name}
    assert not list((held.plugin / "locks").glob("claim-*"))
    assert [path.read_text() for path in (held.plugin / "set-aside").iterdir()] == ["hello"]


async def test_after_a_reboot_the_record_stays_and_still_refuses_others(held):
    """The pod comes back with the same claim; until it does, the device is its own."""
    held.reboot()
    await held.reconciler.run_once()
    with pytest.raises(Conflict):
        await held.manager.prepare(held.allocate(2, "gpu-0"))


async def test_the_number_of_held_claims_is_told_after_a_round(node):
    await node.manager.prepare(node.allocate(1, "gpu-0"))
    node.observed.last = {}
    await node.reconciler.run_once()
    assert node.observed.last == {uid(1): await node.manager.prepare(ref(1))}


async def test_a_claim_of_an_earlier_boot_that_is_gone_frees_its_device_at_once(held):
    """No container has lived through the reboot, so nothing is to be waited for."""
    held.reboot()
    held.delete(1)
    await held.reconciler.run_once()
    assert held.holds_nothing()


async def test_a_claim_without_record_and_cdi_file_still_holds_what_the_api_says(held):
    held.journal_file(1).write_bytes(b"{")
    held.cdi_file(1).write_bytes(b"{")
    with pytest.raises(Conflict, match="claim-1"):
        await held.manager.prepare(held.allocate(2, "gpu-0"))
    assert await held.manager.prepare(held.allocate(3, "gpu-1"))


async def test_a_claim_of_which_nobody_can_tell_the_devices_keeps_others_waiting_while_the_api_is_away(held):
    held.journal_file(1).write_bytes(b"{")
    held.cdi_file(1).write_bytes(b"{")
    reference = held.allocate(2, "gpu-1")
    held.api.list_outage = Unavailable("503")
    with pytest.raises(NotReady, match=f"{uid(1)}.*cannot tell"):
        await held.manager.prepare(reference)
    held.api.list_outage = None
    assert await held.manager.prepare(reference)


async def test_a_claim_that_nobody_knows_any_more_keeps_nobody_waiting(held):
    held.journal_file(1).write_bytes(b"{")
    held.cdi_file(1).unlink()
    held.delete(1)
    assert await held.manager.prepare(held.allocate(2, "gpu-0"))


async def test_directories_removed_under_the_running_plugin_are_made_again(held):
    shutil.rmtree(held.plugin / "claims")
    shutil.rmtree(held.plugin / "locks")
    shutil.rmtree(held.plugin / "set-aside")
    with pytest.raises(Conflict):
        await held.manager.prepare(held.allocate(2, "gpu-0"))
    await held.reconciler.run_once()
    assert (await held.manager.recorded())[uid(1)].phase is Phase.DONE


async def test_a_directory_named_like_a_lock_does_not_stop_the_round(held):
    (held.plugin / "locks" / "claim-x.lock").mkdir()
    held.cdi_file(1).unlink()
    await held.reconciler.run_once()
    assert held.specs.exists_intact(uid(1))


async def test_a_claim_that_is_unprepared_while_it_is_compared_stays_unprepared(held):
    """Otherwise its device would be held by a claim that nobody will unprepare again."""
    real = held.api.get

    async def unprepared_meanwhile(*args, **more):
        found = await real(*args, **more)
        held.api.get = real
        await held.manager.unprepare(ref(1))
        return found

    held.api.get = unprepared_meanwhile
    await held.reconciler.run_once()
    assert held.holds_nothing()


async def test_a_leftover_that_cannot_be_removed_keeps_neither_its_claim_nor_the_round(held):
    (held.plugin / "claims" / f".{uid(1)}.json.0badcafe.tmp").mkdir()
    held.cdi_file(1).unlink()
    await held.reconciler.run_once()
    assert held.specs.exists_intact(uid(1))
    assert not held.manager.is_busy(uid(1))
