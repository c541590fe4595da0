"""What is handed out, and why not."""

from dataclasses import replace

import pytest

from gpu_dra.claims.plan import plan_prepare, plan_repair
from gpu_dra.claims.read import read_claim
from gpu_dra.core.errors import Conflict, NotReady, Refused
from gpu_dra.model.inventory import DriverState, GpuFault
from gpu_dra.model.mig import Placement
from tests.unit.claims.samples import (
    DRIVER,
    POOL,
    claim,
    gpu,
    held,
    inventory,
    opaque,
    partition,
    partitioned,
    prepared,
    ref,
    result,
)

MIG = "gpu-1-mig-1g10gb-19-0"
NODE = inventory(gpu(0), partitioned(1, partition(1, 0), partition(1, 1)), gpu(2))


def plan(obj, holders=(), node=NODE):
    return plan_prepare(read_claim(obj, ref(1), driver=DRIVER, pool=POOL), node, holders)


def config_of(kind="GpuConfig", version="resource.nvidia.com/v1beta1", **fields):
    return {"apiVersion": version, "kind": kind, **fields}


def test_devices_are_resolved_to_hardware_in_the_claims_order():
    found = plan(claim(1, result(MIG, request="small/a"), result("gpu-2", request="big")))
    assert [(device.request, device.name, device.uuid) for device in found.devices] == [
        ("small", MIG, "MIG-1-0"),
        ("big", "gpu-2", "GPU-2"),
    ]


def test_an_unknown_device_is_waited_for_and_the_message_says_what_the_node_has_and_why():
    node = replace(NODE, faults=(GpuFault(where="0000:65:00.0", reason="GPU is lost"),))
    with pytest.raises(NotReady, match=r"gpu-7 is not on this node; it has gpu-0, .*in MIG mode: gpu-1.*0000:65:00.0: GPU is lost"):
        plan(claim(1, result("gpu-7")), node=node)


def test_without_a_driver_its_reason_is_the_message():
    with pytest.raises(NotReady, match="nvidia module is not loaded"):
        plan(claim(1, result("gpu-0")), node=inventory(state=DriverState.DRIVER_NOT_LOADED, reason="nvidia module is not loaded"))


def test_a_sick_gpu_is_kept_from_work_but_not_from_admins():
    node = inventory(gpu(0, unhealthy="XID 79: fallen off the bus"))
    with pytest.raises(NotReady, match=r"gpu-0.*XID 79"):
        plan(claim(1, result("gpu-0")), node=node)
    assert plan(claim(1, result("gpu-0", adminAccess=True)), node=node).devices


def test_a_device_of_another_claim_is_refused_with_the_holder_named():
    with pytest.raises(Conflict, match=r"gpu-0 \(GPU-0\) is held by claim team/claim-2 \(uid .*2\)"):
        plan(claim(1, result("gpu-0")), [prepared(2, held("gpu-0"))])


def test_the_claims_own_record_is_no_conflict():
    assert plan(claim(1, result("gpu-0")), [prepared(1, held("gpu-0"))])


@pytest.mark.parametrize(("mine", "theirs"), [(True, False), (False, True), (True, True)])
def test_admin_access_is_exempt_on_both_sides(mine, theirs):
    assert plan(claim(1, result("gpu-0", adminAccess=mine)), [prepared(2, held("gpu-0", admin_access=theirs))])


def test_two_shares_of_a_device_go_together_but_one_share_twice_does_not():
    obj = claim(1, result("gpu-0", shareID="a"))
    assert plan(obj, [prepared(2, held("gpu-0", share_id="b"))])
    for other in ("a", None):
        with pytest.raises(Conflict):
            plan(obj, [prepared(2, held("gpu-0", share_id=other))])


def test_a_partition_of_a_gpu_that_is_held_whole_is_refused():
    """Names differ, hardware is the same: somebody turned MIG on under a running pod."""
    with pytest.raises(Conflict):
        plan(claim(1, result(MIG)), [prepared(2, held("gpu-1", gpu_uuid="GPU-1"))])


def test_overlapping_placements_are_refused_whatever_the_partitions_are_called():
    holder = held("gpu-1-mig-2g20gb-14-0", gpu_uuid="GPU-1", placement=Placement(start=0, size=2))
    with pytest.raises(Conflict):
        plan(claim(1, result(MIG)), [prepared(2, holder)])


def test_another_partition_of_the_same_gpu_is_no_conflict():
    holder = held("gpu-1-mig-1g10gb-19-1", gpu_uuid="GPU-1", placement=Placement(start=1, size=1))
    assert plan(claim(1, result(MIG)), [prepared(2, holder)])


@pytest.mark.parametrize(
    "sharing",
    [
        None,
        {"strategy": "TimeSlicing"},
        {"strategy": "TimeSlicing", "timeSlicingConfig": {}},
        {"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": "Default"}},
    ],
)
def test_configuration_that_says_what_the_gpu_does_anyway_is_accepted(sharing):
    assert plan(claim(1, result("gpu-0"), config=[opaque(config_of(sharing=sharing))]))


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        (config_of(sharing={"strategy": "MPS"}), r"parameters\.sharing\.strategy: 'MPS'"),
        (config_of(sharing={}), r"parameters\.sharing\.strategy: None"),
        (
            config_of(sharing={"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": "Long"}}),
            r"timeSlicingConfig\.interval: 'Long'",
        ),
        (config_of(sharing={"strategy": "TimeSlicing", "mpsConfig": {}}), r"sharing\.mpsConfig"),
        (config_of(sharing={"strategy": "TimeSlicing", "timeSlicing": {}}), r"sharing\.timeSlicing: unknown field"),
        (config_of(sharing="MPS"), r"parameters\.sharing: expected an object"),
        (config_of(sharin={}), r"parameters\.sharin: unknown field"),
        (config_of(kind="GpuConfg"), r"GpuConfg is not known"),
        (config_of(kind=["GpuConfig"]), r"is not known"),
        (config_of(version="resource.nvidia.com/v1"), r"resource.nvidia.com/v1/GpuConfig is not known"),
    ],
)
def test_configuration_that_cannot_be_honoured_is_refused_by_its_path(parameters, message):
    """A setting that is silently ignored is worse than a pod that does not start."""
    with pytest.raises(Refused, match=message) as refusal:
        plan(claim(1, result("gpu-0"), config=[opaque(parameters)]))
    assert "this version accepts" in str(refusal.value)


def test_the_claims_configuration_takes_the_place_of_the_class_one():
    mps = opaque(config_of(sharing={"strategy": "MPS"}), source="FromClass")
    assert plan(claim(1, result("gpu-0"), config=[mps, opaque(config_of())]))


@pytest.mark.parametrize(("names", "covered"), [(["gpu"], True), (["gpu/large"], True), (["gpu/small"], False), (["nic"], False)])
def test_a_configuration_that_names_a_request_covers_its_sub_requests(names, covered):
    obj = claim(1, result("gpu-0", request="gpu/large"), config=[opaque(config_of(sharing={"strategy": "MPS"}), requests=names)])
    if covered:
        with pytest.raises(Refused):
            plan(obj)
    else:
        assert plan(obj)


def test_a_configuration_for_all_requests_leaves_out_devices_of_another_type():
    entries = [opaque(config_of(kind="MigDeviceConfig", sharing={"strategy": "MPS"})), opaque(config_of(kind="VfioDeviceConfig"))]
    assert plan(claim(1, result("gpu-0"), config=entries))


def test_a_configuration_that_names_a_request_of_another_type_is_refused():
    with pytest.raises(Refused, match="MigDeviceConfig cannot apply to gpu-0"):
        plan(claim(1, result("gpu-0"), config=[opaque(config_of(kind="MigDeviceConfig"), requests=["gpu"])]))


def test_under_admin_access_no_configuration_applies():
    """The device may be somebody else's; a monitoring claim must not change how it is shared."""
    obj = claim(1, result("gpu-0", adminAccess=True), config=[opaque(config_of(sharing={"strategy": "MPS"}))])
    assert plan(obj)


def test_a_recorded_gpu_whose_name_now_belongs_to_another_is_refused():
    """Minor numbers can shift over a reboot; the pod would get hardware that the scheduler did not choose."""
    with pytest.raises(Refused, match=r"gpu-0 was GPU-9 .* and is GPU-0 now"):
        plan_repair(prepared(1, held("gpu-0", uuid="GPU-9", gpu_uuid="GPU-9")), NODE)


def test_a_partition_made_anew_at_its_place_is_the_same_device():
    recorded = held(MIG, uuid="MIG-former", gpu_uuid="GPU-1", placement=Placement(start=0, size=1))
    assert plan_repair(prepared(1, recorded), NODE).devices[0].uuid == "MIG-1-0"
