"""What is recorded is checked, and made again where it is lost or damaged, before it is answered."""

import errno
import os
from dataclasses import replace

import pytest

from gpu_dra.core.errors import Broken, Conflict, NotReady, Refused
from gpu_dra.kube.errors import Unavailable
from gpu_dra.model.inventory import DriverState
from tests.unit.claims.samples import gpu, inventory, partition, partitioned, uid


@pytest.mark.parametrize("harm", ["delete", "cut", "twin"])
async def test_a_repeat_restores_a_harmed_cdi_file_first(node, harm):
    claim = node.allocate(1, "gpu-0")
    first = await node.manager.prepare(claim)
    path = node.cdi_file(1)
    if harm == "delete":
        path.unlink()
    elif harm == "cut":
        os.truncate(path, 20)
    else:
        path.with_suffix(".json").write_bytes(path.read_bytes())
    assert await node.manager.prepare(claim) == first
    assert node.specs.exists_intact(uid(1))


async def test_a_repeat_restores_a_device_node_that_vanished(node):
    claim = node.allocate(1, "gpu-0")
    await node.manager.prepare(claim)
    node.builder.gone = ("/dev/nvidia0",)
    await node.manager.prepare(claim)
    assert node.builder.builds == 2


async def test_what_cannot_be_restored_is_an_error_and_stays_recorded(node):
    claim = node.allocate(1, "gpu-0")
    await node.manager.prepare(claim)
    node.builder.gone, node.builder.failure = ("/dev/nvidia0",), NotReady("/dev/nvidia0 could not be created")
    with pytest.raises(NotReady, match="could not be created"):
        await node.manager.prepare(claim)
    assert node.journal_file(1).exists()


async def test_after_a_reboot_everything_is_made_again_before_the_answer(node):
    """/var/run/cdi is gone, the record is not."""
    claim = node.allocate(1, "gpu-0")
    await node.manager.prepare(claim)
    node.reboot()
    assert (await node.manager.prepare(claim)).boot_id == "boot-2"
    assert node.specs.exists_intact(uid(1))


async def test_after_a_driver_change_the_file_names_the_new_libraries(node):
    claim = node.allocate(1, "gpu-0")
    await node.manager.prepare(claim)
    node.inventories.current = replace(node.inventories.current, driver_version="590.1")
    await node.manager.prepare(claim)
    assert b"DRIVER=590.1" in node.cdi_file(1).read_bytes()


async def test_a_gpu_that_took_the_recorded_name_is_not_handed_out(node):
    claim = node.allocate(1, "gpu-0")
    await node.manager.prepare(claim)
    node.inventories.current = inventory(gpu(0, uuid="GPU-other"))
    with pytest.raises(Refused, match="GPU-other now"):
        await node.manager.prepare(claim)


async def test_a_partition_made_anew_is_recorded_with_its_new_uuid(node):
    name = "gpu-0-mig-1g10gb-19-0"
    node.inventories.current = inventory(partitioned(0, partition(0, 0)))
    claim = node.allocate(1, name)
    await node.manager.prepare(claim)
    node.inventories.current = inventory(partitioned(0, partition(0, 0, uuid="MIG-new")))
    assert (await node.manager.prepare(claim)).devices[0].uuid == "MIG-new"


async def test_a_device_that_appeared_since_the_last_look_is_found_by_another_look(node):
    node.inventories.next = inventory(gpu(0), gpu(7))
    assert await node.manager.prepare(node.allocate(1, "gpu-7"))
    assert node.inventories.refreshes == 1


async def test_a_recorded_claim_waits_while_the_driver_is_away(node):
    claim = node.allocate(1, "gpu-0")
    await node.manager.prepare(claim)
    node.inventories.current = inventory(
        state=DriverState.DRIVER_NOT_LOADED, reason="module nvidia is not loaded", driver_version=None
    )
    with pytest.raises(NotReady, match="module nvidia is not loaded"):
        await node.manager.prepare(claim)
    assert node.journal_file(1).exists()


@pytest.mark.parametrize("content", [b"", b'{"kind": "gpu-dra.claim", "version": 1}\n{}'])
async def test_a_damaged_record_is_set_aside_and_made_again_from_the_api(node, content):
    claim = node.allocate(1, "gpu-0")
    first = await node.manager.prepare(claim)
    node.journal_file(1).write_bytes(content)
    assert await node.manager.prepare(claim) == first
    assert len(list((node.plugin / "set-aside").iterdir())) == 1
    assert len(node.observed.aside) == 1


async def test_the_device_of_a_damaged_record_is_still_held(node):
    await node.manager.prepare(node.allocate(1, "gpu-0"))
    node.journal_file(1).write_bytes(b"")
    with pytest.raises(Conflict, match=uid(1)):
        await node.manager.prepare(node.allocate(2, "gpu-0"))
    assert await node.manager.prepare(node.allocate(3, "gpu-1"))


async def test_devices_stay_held_when_the_whole_journal_is_lost(node):
    """The kubelet does not prepare again for pods that run; only the CDI files know what they have."""
    await node.manager.prepare(node.allocate(1, "gpu-0"))
    node.journal_file(1).unlink()
    with pytest.raises(Conflict, match=uid(1)):
        await node.manager.prepare(node.allocate(2, "gpu-0"))


async def test_unprepare_of_a_damaged_record_frees_the_device(node):
    claim = node.allocate(1, "gpu-0")
    await node.manager.prepare(claim)
    node.journal_file(1).write_bytes(b"\0\0")
    await node.manager.unprepare(claim)
    assert node.holds_nothing()


async def test_a_failed_rebuild_leaves_the_cdi_file_of_a_running_pod(node):
    """Its journal was lost, its pod runs; a build error must not make the device look free."""
    claim = node.allocate(1, "gpu-0")
    await node.manager.prepare(claim)
    node.journal_file(1).unlink()
    node.builder.failure = NotReady("libraries are being replaced")
    with pytest.raises(NotReady):
        await node.manager.prepare(claim)
    assert node.specs.exists_intact(uid(1))


NEWER = b'{"kind": "gpu-dra.claim", "version": 99}\n{}'


async def test_the_record_of_a_newer_build_stays_and_goes_on_holding_its_device(node):
    """It may tell of effects that only the newer build can undo; a process of the older build may be the one that is called."""
    claim = node.allocate(1, "gpu-0")
    await node.manager.prepare(claim)
    node.journal_file(1).write_bytes(NEWER)
    for call in (node.manager.prepare, node.manager.unprepare):
        with pytest.raises(NotReady, match="run the version of gpu-dra that wrote it"):
            await call(claim)
    with pytest.raises(Conflict):
        await node.manager.prepare(node.allocate(2, "gpu-0"))
    assert node.journal_file(1).read_bytes() == NEWER
    assert node.cdi_file(1).exists()


async def test_a_record_that_cannot_be_read_now_is_not_taken_for_damaged(node, monkeypatch):
    claim = node.allocate(1, "gpu-0")
    await node.manager.prepare(claim)
    node.start()  # nothing remembered
    content = node.journal_file(1).read_bytes()

    def exhausted(path, *_args, **_more):
        raise OSError(errno.EMFILE, "Too many open files", path)

    with monkeypatch.context() as patch:
        patch.setattr("gpu_dra.claims.journal.open", exhausted, raising=False)
        with pytest.raises(Broken, match="Too many open files"):
            await node.manager.unprepare(claim)
    assert node.journal_file(1).read_bytes() == content


async def test_a_claim_that_was_allocated_anew_is_not_restored_on_its_old_device(node):
    claim = node.allocate(1, "gpu-0")
    await node.manager.prepare(claim)
    node.reboot()
    node.allocate(1, "gpu-3")
    assert (await node.manager.prepare(claim)).device_names == {"gpu-3"}


async def test_what_was_lost_is_restored_from_the_record_while_the_api_is_away(node):
    claim = node.allocate(1, "gpu-0")
    await node.manager.prepare(claim)
    node.cdi_file(1).unlink()
    node.api.outage = Unavailable("503")
    await node.manager.prepare(claim)
    assert node.specs.exists_intact(uid(1))
