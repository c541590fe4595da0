"""Prepare and unprepare as the kubelet sees them."""

from dataclasses import replace

import pytest

from gpu_dra.core.errors import Broken, Conflict, NotReady, Refused
from gpu_dra.kube.errors import NotFound, Unavailable
from gpu_dra.model.claim import ClaimRef
from tests.unit.claims.samples import POOL, opaque, ref, result, uid


async def test_a_claim_gets_its_device_and_a_cdi_file(node):
    answer = await node.manager.prepare(node.allocate(1, "gpu-3", request="big/h100"))
    (device,) = answer.devices
    assert (device.request, device.pool, device.device) == ("big", POOL, "gpu-3")
    assert device.cdi_ids == (f"k8s.gpu.nvidia.com/claim={uid(1)}-gpu-3",)
    assert node.specs.exists_intact(uid(1))


async def test_a_repeat_gets_the_same_answer_without_the_api_and_without_a_write(node):
    """After a kubelet restart every running pod's claim is asked for again, maybe while the API server is away."""
    claim = node.allocate(1, "gpu-0")
    first = await node.manager.prepare(claim)
    node.api.outage = Unavailable("connection refused")
    before = node.cdi_file(1).stat(), node.journal_file(1).stat()
    assert await node.manager.prepare(claim) == first
    assert (node.cdi_file(1).stat(), node.journal_file(1).stat()) == before
    assert node.builder.builds == 1


async def test_a_repeat_after_a_restart_of_the_plugin_needs_the_api_as_little(node):
    claim = node.allocate(1, "gpu-0")
    first = await node.manager.prepare(claim)
    node.start()
    node.api.outage = Unavailable("connection refused")
    assert await node.manager.prepare(claim) == first


async def test_unprepare_leaves_nothing_and_needs_no_api(node):
    claim = node.allocate(1, "gpu-0")
    await node.manager.prepare(claim)
    node.api.outage = Unavailable("connection refused")
    await node.manager.unprepare(claim)
    assert node.holds_nothing()


async def test_unprepare_of_something_unknown_succeeds_any_number_of_times(node):
    for _ in range(2):
        await node.manager.unprepare(ref(9))
    assert node.holds_nothing()


async def test_a_claim_can_be_prepared_again_after_unprepare(node):
    """A second pod of a shared claim may arrive while the claim is being taken back for the first."""
    claim = node.allocate(1, "gpu-0")
    for _ in range(2):
        await node.manager.prepare(claim)
        await node.manager.unprepare(claim)
    assert node.holds_nothing()


async def test_a_device_named_by_two_requests_is_built_once_and_answered_twice(node):
    """A pod that works on a GPU and also monitors all of them."""
    node.api.put(
        {
            "metadata": {"name": "claim-1", "namespace": "team", "uid": uid(1)},
            "status": {
                "allocation": {"devices": {"results": [result("gpu-0"), result("gpu-0", request="watch", adminAccess=True)]}}
            },
        }
    )
    answer = await node.manager.prepare(ref(1))
    assert [(device.request, device.cdi_ids) for device in answer.devices] == [
        ("gpu", (f"k8s.gpu.nvidia.com/claim={uid(1)}-gpu-0",)),
        ("watch", (f"k8s.gpu.nvidia.com/claim={uid(1)}-gpu-0",)),
    ]


async def test_a_claim_that_is_gone_from_the_api_says_so(node):
    with pytest.raises(NotFound, match=r"claim team/claim-1 .* is not in the API any more"):
        await node.manager.prepare(ref(1))
    assert node.holds_nothing()


async def test_a_claim_that_was_replaced_under_its_name_is_refused(node):
    node.allocate(1, "gpu-0")
    with pytest.raises(Refused, match="was replaced"):
        await node.manager.prepare(replace(ref(1), uid=uid(99)))
    assert node.holds_nothing()


async def test_during_an_api_outage_a_new_claim_is_told_to_come_again(node):
    node.api.outage = Unavailable("connection refused")
    with pytest.raises(NotReady, match="connection refused"):
        await node.manager.prepare(ref(1))
    assert node.holds_nothing()


@pytest.mark.parametrize("bad", ["../../etc/shadow", "", "a/b"])
async def test_a_uid_that_is_a_path_goes_nowhere(node, bad):
    for act in (node.manager.prepare, node.manager.unprepare):
        with pytest.raises(Refused, match="UID"):
            await act(ClaimRef(namespace="team", name="claim-1", uid=bad))
    assert node.holds_nothing()


async def test_a_held_device_is_refused_with_its_holder_until_that_is_unprepared(node):
    """A force-deleted pod's successor may come before the old claim is taken back."""
    first, second = node.allocate(1, "gpu-0"), node.allocate(2, "gpu-0")
    await node.manager.prepare(first)
    with pytest.raises(Conflict, match=r"held by claim team/claim-1"):
        await node.manager.prepare(second)
    assert not node.cdi_file(2).exists()
    await node.manager.unprepare(first)
    assert await node.manager.prepare(second)


async def test_an_unprepare_touches_its_own_uid_only(node):
    first, second = node.allocate(1, "gpu-0"), node.allocate(2, "gpu-1")
    await node.manager.prepare(first)
    await node.manager.prepare(second)
    await node.manager.unprepare(replace(second, uid=uid(1)))  # the first one's UID under the second one's name
    assert not node.journal_file(1).exists()
    assert node.specs.exists_intact(uid(2))


async def test_configuration_that_cannot_be_honoured_is_refused_before_anything_is_made(node):
    claim = node.allocate(1, "gpu-0")
    mps = {"apiVersion": "resource.nvidia.com/v1beta1", "kind": "GpuConfig", "sharing": {"strategy": "MPS"}}
    node.api.claims["claim-1"]["status"]["allocation"]["devices"]["config"] = [opaque(mps)]
    with pytest.raises(Refused, match="MPS"):
        await node.manager.prepare(claim)
    assert node.holds_nothing()
    assert node.builder.builds == 0


async def test_a_prepare_that_fails_half_way_leaves_nothing(node):
    claim = node.allocate(1, "gpu-0")
    node.builder.failure = NotReady("/dev/nvidia0 is missing")
    with pytest.raises(NotReady, match="/dev/nvidia0"):
        await node.manager.prepare(claim)
    assert node.holds_nothing()


async def test_a_cdi_file_whose_record_cannot_be_written_is_taken_back(node):
    """A full disk must not leave a file that nobody accounts for."""
    claim = node.allocate(1, "gpu-0")
    (node.plugin / "claims").rmdir()
    (node.plugin / "claims").write_text("not a directory")
    with pytest.raises(Broken, match="journal"):
        await node.manager.prepare(claim)
    assert not list(node.cdi.iterdir())


async def test_each_operation_is_reported_with_its_steps_and_its_error(node):
    await node.manager.prepare(node.allocate(1, "gpu-0"))
    with pytest.raises(NotFound):
        await node.manager.prepare(ref(2))
    done, failed = node.observed.reports
    assert {"lock", "look_up", "get_claim", "plan", "cdi_build", "cdi_write", "journal"} == set(done.steps)
    assert (done.error, failed.error) == (None, "NotFound")
    assert done.seconds >= sum(done.steps.values()) > 0


async def test_the_number_of_held_claims_is_told_after_each_change(node):
    claim = node.allocate(1, "gpu-0")
    await node.manager.prepare(claim)
    assert set(node.observed.last) == {uid(1)}
    await node.manager.unprepare(claim)
    assert node.observed.last == {}
