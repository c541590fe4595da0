"""Claims through the kubelet's sockets: what is answered, what is on disk, and what survives."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal

import pytest

from gpu_dra.kube.api import RESOURCE_CLAIMS
from gpu_dra.model.claim import ClaimRef
from tests.component.plugin import NODE, prepared, refused, unprepared
from tests.support.fake_kubelet import prepare, unprepare


async def test_a_prepared_claim_has_a_cdi_file_with_its_device_and_no_other(world, plugin):
    ref = await world.claims.create("gpu-3")
    answer = (await prepare(plugin, ref))[ref.uid]
    spec = json.loads(world.host.spec(ref).read_text())
    (device,) = spec["devices"]
    assert answer.devices[0].cdi_device_ids == [f"{spec['kind']}={device['name']}"]
    nodes = [node["path"] for node in device["containerEdits"]["deviceNodes"]]
    assert "/dev/nvidia3" in nodes
    assert not [path for path in nodes if path.startswith("/dev/nvidia") and path != "/dev/nvidia3"]
    assert "NVIDIA_VISIBLE_DEVICES=void" in spec["containerEdits"]["env"]


async def test_a_repeat_gives_the_same_answer_and_writes_nothing(world, plugin):
    ref = await world.claims.create("gpu-3")
    first = await prepare(plugin, ref)
    files = {path: path.stat().st_mtime_ns for path in (world.host.spec(ref), world.host.record(ref))}
    world.api.calls.clear()
    assert await prepare(plugin, ref) == first
    assert {path: path.stat().st_mtime_ns for path in files} == files
    assert not [call for call in world.api.calls if call.resource == RESOURCE_CLAIMS]


async def test_after_unprepare_nothing_is_left(world, plugin):
    ref = await world.claims.create("gpu-3")
    await prepared(plugin, ref)
    await unprepared(plugin, ref)
    assert world.host.is_empty()


async def test_unprepare_of_an_unknown_claim_succeeds(plugin):
    await unprepared(plugin, ClaimRef(namespace="default", name="never", uid="0c6a5f3e-0000-4000-8000-000000000000"))


async def test_one_claim_missing_in_the_api_does_not_spoil_the_others_of_the_call(world, plugin):
    good, gone = await world.claims.create("gpu-0"), await world.claims.create("gpu-1")
    await world.claims.delete(gone)
    answers = await prepare(plugin, good, gone)
    assert not answers[good.uid].error
    assert "not in the API" in answers[gone.uid].error


async def test_a_claim_made_again_under_its_name_is_another_claim(world, plugin):
    ref = await world.claims.create("gpu-0")
    old = ClaimRef(namespace=ref.namespace, name=ref.name, uid="0c6a5f3e-0000-4000-8000-000000000000")
    assert "replaced" in await refused(plugin, old)


async def test_a_device_that_another_claim_holds_is_refused_with_the_holder_named(world, plugin):
    holder, second = await world.claims.create("gpu-0"), await world.claims.create("gpu-0")
    await prepared(plugin, holder)
    assert holder.name in await refused(plugin, second)
    await unprepared(plugin, holder)
    assert await prepared(plugin, second) == ["gpu-0"]


async def test_admin_access_shares_a_device_that_is_held(world, plugin):
    holder, admin = await world.claims.create("gpu-0"), await world.claims.create("gpu-0", admin=True)
    await prepared(plugin, holder)
    assert await prepared(plugin, admin) == ["gpu-0"]


async def test_only_results_of_our_driver_and_pool_are_touched(world, plugin):
    ref = await world.claims.create("gpu-0")
    claim = await world.api.get(RESOURCE_CLAIMS, ref.name, namespace="default")
    claim["status"]["allocation"]["devices"]["results"] += [
        {"request": "nic", "driver": "nic.example.com", "pool": NODE, "device": "gpu-1"},
        {"request": "gpu", "driver": "gpu.nvidia.com", "pool": "node-b", "device": "gpu-2"},
    ]
    await world.api.update_status(RESOURCE_CLAIMS, claim, namespace="default")
    assert await prepared(plugin, ref) == ["gpu-0"]


async def test_an_unknown_device_is_refused_with_what_the_node_has(world, plugin):
    assert "gpu-42" in await refused(plugin, await world.claims.create("gpu-42"))


async def test_a_uid_that_leads_out_of_the_directory_is_refused(world, plugin):
    evil = ClaimRef(namespace="default", name="evil", uid="../../../etc/passwd")
    assert "UID" in await refused(plugin, evil)


async def test_a_cdi_file_that_was_lost_is_written_again_before_the_answer(world, plugin):
    ref = await world.claims.create("gpu-3")
    await prepared(plugin, ref)
    content = world.host.spec(ref).read_bytes()
    world.host.spec(ref).unlink()
    await prepared(plugin, ref)
    assert world.host.spec(ref).read_bytes() == content


@pytest.mark.parametrize(
    "content", [b"", b'{"cdiVersion": "0.5', b'{"cdiVersion": "0.5.0", "kind": "else.com/gpu", "devices": []}']
)
async def test_a_cdi_file_that_was_damaged_is_put_right_before_the_answer(world, plugin, content):
    ref = await world.claims.create("gpu-3")
    await prepared(plugin, ref)
    good = world.host.spec(ref).read_bytes()
    world.host.spec(ref).write_bytes(content)
    await prepared(plugin, ref)
    assert world.host.spec(ref).read_bytes() == good


async def test_a_cdi_directory_that_went_away_is_told_until_it_is_back(world, plugin):
    ref = await world.claims.create("gpu-3")
    await prepared(plugin, ref)
    shutil.rmtree(world.host.cdi)
    assert str(world.host.cdi) in await refused(plugin, ref)
    world.host.cdi.mkdir()
    await prepared(plugin, ref)
    assert world.host.spec(ref).exists()


async def test_a_cdi_file_that_cannot_be_written_fails_the_claim_and_is_named(world, plugin):
    ref = await world.claims.create("gpu-3")
    world.host.spec(ref).mkdir()
    assert str(world.host.spec(ref)) in await refused(plugin, ref)
    world.host.spec(ref).rmdir()
    assert await prepared(plugin, ref) == ["gpu-3"]


async def test_claims_on_every_gpu_at_once_all_get_theirs(world, plugin):
    refs = [await world.claims.create(f"gpu-{minor}") for minor in range(8)]
    found = await asyncio.gather(*(prepared(plugin, ref) for ref in refs))
    assert found == [[f"gpu-{minor}"] for minor in range(8)]
    await asyncio.gather(*(unprepared(plugin, ref) for ref in refs))
    assert world.host.is_empty()


async def test_of_many_claims_on_one_gpu_at_once_one_wins(world, plugin):
    refs = [await world.claims.create("gpu-0") for _ in range(8)]
    answers = await asyncio.gather(*(prepare(plugin, ref) for ref in refs))
    errors = [answer[ref.uid].error for answer, ref in zip(answers, refs, strict=True)]
    assert errors.count("") == 1


async def test_a_kubelet_of_the_older_api_is_served_too(world, plugin):
    ref = await world.claims.create("gpu-3")
    answer = (await prepare(plugin, ref, version="v1beta1"))[ref.uid]
    assert [device.device_name for device in answer.devices] == ["gpu-3"]
    assert not (await unprepare(plugin, ref, version="v1beta1"))[ref.uid].error
    assert world.host.is_empty()


async def test_a_missing_device_node_is_made_with_the_right_numbers(world, plugin):
    node = world.host.tree.dev / "nvidia3"
    numbers = node.stat().st_rdev
    node.unlink()
    await prepared(plugin, await world.claims.create("gpu-3"))
    assert node.stat().st_rdev == numbers


async def test_a_device_node_that_cannot_be_made_fails_the_claim_and_is_named(world, plugin):
    node = world.host.tree.dev / "nvidia3"
    node.unlink()
    node.mkdir()
    assert "/dev/nvidia3" in await refused(plugin, await world.claims.create("gpu-3"))
    assert world.host.is_empty()


async def test_a_mig_device_comes_with_its_capability_nodes(world):
    world.host.mock.mig_mode(2, enabled=True)
    world.host.mock.partition(2, 19, start=0)
    plugin = await world.registered()
    await world.until("the partition", world.devices)
    ref = await world.claims.create("gpu-2-mig-1g10gb-19-0")
    await prepared(plugin, ref)
    (device,) = json.loads(world.host.spec(ref).read_text())["devices"]
    nodes = [node["path"] for node in device["containerEdits"]["deviceNodes"]]
    assert nodes[0] == "/dev/nvidia2"
    assert len([path for path in nodes if path.startswith("/dev/nvidia-caps/nvidia-cap")]) == 2


async def test_a_partition_that_is_gone_is_refused_and_its_old_claim_can_be_unprepared(world):
    world.host.mock.mig_mode(2, enabled=True)
    world.host.mock.partition(2, 19, start=0)
    plugin = await world.registered()
    await world.until("the partition", world.devices)
    held, late = await world.claims.create("gpu-2-mig-1g10gb-19-0"), await world.claims.create("gpu-2-mig-1g10gb-19-0")
    await prepared(plugin, held)
    (instance,) = world.host.mock.show()["gpus"][2]["gpu_instances"]
    world.host.mock.unpartition(2, instance["id"])
    assert "gpu-2-mig-1g10gb-19-0" in await refused(plugin, late)
    await unprepared(plugin, held)
    assert world.host.is_empty()


async def test_a_sharing_setting_that_is_not_there_yet_is_refused_and_not_ignored(world, plugin):
    ref = await world.claims.create("gpu-0")
    claim = await world.api.get(RESOURCE_CLAIMS, ref.name, namespace="default")
    parameters = {"apiVersion": "resource.nvidia.com/v1beta1", "kind": "GpuConfig", "sharing": {"strategy": "MPS"}}
    claim["status"]["allocation"]["devices"]["config"] = [
        {"source": "FromClaim", "requests": [], "opaque": {"driver": "gpu.nvidia.com", "parameters": parameters}}
    ]
    await world.api.update_status(RESOURCE_CLAIMS, claim, namespace="default")
    assert "MPS" in await refused(plugin, ref)


async def test_a_killed_plugin_comes_back_knowing_its_claims(world, plugin):
    ref = await world.claims.create("gpu-3")
    first = await prepare(plugin, ref)
    await world.kill()
    plugin = await world.registered()
    assert await prepare(plugin, ref) == first
    await unprepared(plugin, ref)
    assert world.host.is_empty()


@pytest.mark.parametrize("damage", ["truncated", "garbage", "empty", "directory", "missing"])
async def test_a_damaged_record_costs_nothing_in_the_end(world, plugin, damage):
    """It is set aside, its claim still holds its device, and the claim can be unprepared."""
    ref, other = await world.claims.create("gpu-3"), await world.claims.create("gpu-4")
    await prepared(plugin, ref)
    await prepared(plugin, other)
    await world.kill()
    damage_record(world.host.record(ref), damage)
    plugin = await world.registered()
    assert await prepared(plugin, other) == ["gpu-4"]
    rival = await world.claims.create("gpu-3")
    assert await refused(plugin, rival)
    await world.until("the holder known by name again", lambda: names_the_holder(plugin, rival, ref))
    assert await prepared(plugin, ref) == ["gpu-3"]
    await unprepared(plugin, ref)
    await unprepared(plugin, other)
    assert world.host.is_empty()


async def test_a_state_directory_that_was_wiped_frees_no_device(world, plugin):
    """Pods go on running when the plugin's directory is cleared; the CDI files tell what they hold."""
    ref = await world.claims.create("gpu-3")
    await prepared(plugin, ref)
    await world.kill()
    shutil.rmtree(world.host.data)
    plugin = await world.registered()
    assert await refused(plugin, await world.claims.create("gpu-3"))
    assert await prepared(plugin, ref) == ["gpu-3"]


async def names_the_holder(plugin, rival, holder):
    return holder.name in (await prepare(plugin, rival))[rival.uid].error


def damage_record(record, damage):
    content = record.read_bytes()
    record.unlink()
    match damage:
        case "truncated":
            record.write_bytes(content[: len(content) // 2])
        case "garbage":
            record.write_bytes(b"\x00\xff garbage")
        case "empty":
            record.write_bytes(b"")
        case "directory":
            record.mkdir()


async def test_after_a_reboot_the_next_prepare_restores_everything(world, plugin):
    ref = await world.claims.create("gpu-3")
    await prepared(plugin, ref)
    await world.kill()
    world.host.boot_id.write_text("boot-2\n")
    world.host.spec(ref).unlink()
    (world.host.tree.dev / "nvidia3").unlink()
    plugin = await world.registered()
    await prepared(plugin, ref)
    assert world.host.spec(ref).exists()
    assert (world.host.tree.dev / "nvidia3").is_char_device()


@pytest.mark.parametrize("content", ['{"checksum": 1, "v2": {"preparedClaims": {"a": {}}}}', '{"checks', "[]"])
async def test_a_checkpoint_of_nvidias_driver_is_left_alone(world, content):
    world.host.data.mkdir(parents=True)
    checkpoint = world.host.data / "checkpoint.json"
    checkpoint.write_text(content)
    plugin = await world.registered()
    assert await prepared(plugin, await world.claims.create("gpu-0")) == ["gpu-0"]
    assert checkpoint.read_text() == content
    assert "checkpoint of NVIDIA's driver" in world.log.read_text()


async def test_an_exchanged_driver_is_what_the_next_claim_gets(world, plugin):
    """New library files and another version, while the plugin runs."""
    first = await world.claims.create("gpu-0")
    await prepared(plugin, first)
    old, new = world.host.tree.driver_version, "590.44.01"
    libraries = world.host.tree.library_directory
    for path in list(libraries.rglob(f"*{old}*")):
        if not path.is_symlink():
            target = path.with_name(path.name.replace(old, new))
            shutil.move(path, target)
    for link in [path for path in libraries.rglob("*") if path.is_symlink()]:
        target = str(link.readlink())
        if old in target:
            link.unlink()
            link.symlink_to(target.replace(old, new))
    world.host.mock.__class__(state=libraries / f"libnvidia-mockstate.so.{new}", control=world.host.mock.control).driver_version(
        new
    )

    async def new_version():
        devices = await world.devices()
        return devices and devices["gpu-0"]["attributes"]["driverVersion"]["version"] == "590.44.1"

    await world.until("the new version published", new_version, within=40)
    second = await world.claims.create("gpu-1")
    await prepared(plugin, second)
    assert f"libcuda.so.{new}" in world.host.spec(second).read_text()


async def test_sigterm_ends_it_with_success_and_leaves_the_slices(world, plugin):
    ref = await world.claims.create("gpu-0")
    await prepared(plugin, ref)
    process = world.processes[-1]
    process.send_signal(signal.SIGTERM)
    assert await process.wait() == 0
    assert not list(world.host.registry.iterdir())
    assert await world.devices()
    assert world.host.record(ref).exists()
