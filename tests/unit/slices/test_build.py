"""From an inventory to the pool: what is offered, under which names, and what is not."""

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu_dra.model.gpu import MigMode
from gpu_dra.model.inventory import DriverState, Inventory
from gpu_dra.slices.build import UNHEALTHY, build_slices
from gpu_dra.slices.limits import SliceLimits
from gpu_dra.slices.plan import plan_writes
from gpu_dra.slices.validate import refusals
from tests.unit.slices import samples
from tests.unit.slices.samples import FABRIC, NODE, V1_34, V1_35, V1_36, h100, inventory, partition, partitioned, unhealthy


def build(*gpus, server=V1_36, **facts):
    return build_slices(inventory(*gpus, **facts), node_name=NODE, server_version=server)


def only_device(pool):
    (piece,) = pool.slices
    (device,) = piece.devices
    return device


def test_a_whole_gpu_is_published_with_the_names_of_nvidias_driver():
    assert only_device(build(h100(3))) == {
        "name": "gpu-3",
        "attributes": {
            "type": {"string": "gpu"},
            "uuid": {"string": "GPU-00000000-0000-0000-0000-000000000003"},
            "productName": {"string": "NVIDIA H100 80GB HBM3"},
            "brand": {"string": "Nvidia"},
            "architecture": {"string": "Hopper"},
            "cudaComputeCapability": {"version": "9.0.0"},
            "driverVersion": {"version": "580.126.9"},
            "cudaDriverVersion": {"version": "13.0.0"},
            "addressingMode": {"string": "HMM"},
            "resource.kubernetes.io/pciBusID": {"string": "0000:13:00.0"},
            "resource.kubernetes.io/pcieRoot": {"string": "pci0000:13"},
            "resource.kubernetes.io/numaNode": {"int": 0},
        },
        "capacity": {"memory": {"value": "81559Mi"}},
    }


def test_a_mig_device_is_published_with_the_names_of_nvidias_driver():
    gpu = h100(0, mig_mode=MigMode(current=True, pending=True), mig_devices=(partition(0, 2),))
    device = only_device(build(gpu))
    assert device["name"] == "gpu-0-mig-1g10gb-me-20-2"
    assert device["attributes"] == {
        "type": {"string": "mig"},
        "uuid": {"string": "MIG-00000000-0000-0000-0002-000000000000"},
        "parentUUID": {"string": "GPU-00000000-0000-0000-0000-000000000000"},
        "profile": {"string": "1g.10gb+me"},
        "productName": {"string": "NVIDIA H100 80GB HBM3"},
        "brand": {"string": "Nvidia"},
        "architecture": {"string": "Hopper"},
        "cudaComputeCapability": {"version": "9.0.0"},
        "driverVersion": {"version": "580.126.9"},
        "cudaDriverVersion": {"version": "13.0.0"},
        "addressingMode": {"string": "HMM"},
        "resource.kubernetes.io/pciBusID": {"string": "0000:10:00.0"},
        "resource.kubernetes.io/pcieRoot": {"string": "pci0000:10"},
        "resource.kubernetes.io/numaNode": {"int": 0},
    }
    assert device["capacity"] == {
        "multiprocessors": {"value": "16"},
        "copyEngines": {"value": "1"},
        "decoders": {"value": "1"},
        "encoders": {"value": "0"},
        "jpegEngines": {"value": "1"},
        "ofaEngines": {"value": "1"},
        "memory": {"value": "9856Mi"},
        "memorySlice2": {"value": "1"},
    }


def test_a_gpu_in_a_multi_node_nvlink_domain_says_which():
    attributes = only_device(build(h100(0, fabric=FABRIC)))["attributes"]
    assert attributes["fabricClusterUUID"] == {"string": FABRIC.cluster_uuid}
    assert attributes["fabricCliqueID"] == {"int": 32766}


def test_a_fact_that_nvml_refused_is_left_out_and_hides_nothing():
    bare = h100(
        0,
        brand=None,
        architecture=None,
        cuda_compute_capability=None,
        memory_bytes=None,
        addressing_mode=None,
        pcie_root=None,
        numa_node=None,
    )
    device = only_device(build(bare, driver_version=None, cuda_driver_version=None))
    assert set(device["attributes"]) == {"type", "uuid", "productName", "resource.kubernetes.io/pciBusID"}
    assert device["capacity"] == {}


def test_a_partitioned_gpu_is_never_offered_whole():
    pool = build(partitioned(0, 2), h100(1))
    assert samples.names(pool) == [["gpu-0-mig-1g10gb-me-20-0", "gpu-0-mig-1g10gb-me-20-1", "gpu-1"]]


def test_a_gpu_in_mig_mode_without_partitions_offers_nothing():
    pool = build(partitioned(0, 0), h100(1))
    assert samples.names(pool) == [["gpu-1"]]


@pytest.mark.parametrize("state", [DriverState.NO_GPU, DriverState.DRIVER_NOT_LOADED, DriverState.UNRESPONSIVE])
def test_a_node_without_devices_publishes_one_empty_slice(state):
    """It tells the driver is alive, and withdraws the devices of a driver that went away."""
    pool = build_slices(Inventory(state=state, reason="none"), node_name=NODE, server_version=V1_36)
    assert samples.names(pool) == [[]]


def test_an_unhealthy_gpu_is_tainted_where_the_server_keeps_taints():
    pool = build(unhealthy(h100(0)), h100(1))
    sick, well = pool.slices[0].devices
    assert sick["taints"] == [UNHEALTHY]
    assert "taints" not in well


def test_partitions_of_an_unhealthy_gpu_are_tainted_too():
    pool = build(unhealthy(partitioned(0, 2)))
    assert [device["taints"] for device in pool.slices[0].devices] == [[UNHEALTHY], [UNHEALTHY]]


@pytest.mark.parametrize("server", [V1_34, V1_35])
def test_an_unhealthy_gpu_is_withdrawn_where_the_server_would_drop_its_taint(server):
    """The taint would vanish silently and the GPU look as good as any."""
    pool = build(unhealthy(h100(0)), h100(1), server=server)
    assert samples.names(pool) == [["gpu-1"]]
    assert [str(dropped) for dropped in pool.dropped] == ["gpu-0: device: unhealthy: fell off the bus (XID 79)"]


def test_a_recovered_gpu_is_offered_as_before():
    assert build(h100(0)).slices == build(replace(unhealthy(h100(0)), unhealthy=None)).slices


def test_a_product_name_that_is_too_long_is_cut_and_reported():
    """A missing attribute would fail every selector that reads it, on all nodes."""
    name = "NVIDIA " + "é" * 60
    pool = build(h100(0, product_name=name))
    published = only_device(pool)["attributes"]["productName"]["string"]
    assert name.startswith(published)
    assert len(published.encode()) in (63, 64)
    assert [dropped.what for dropped in pool.dropped] == ["attribute productName"]


@pytest.mark.parametrize(
    ("facts", "lost"),
    [
        ({"driver_version": "N/A"}, "attribute driverVersion"),
        ({"driver_version": "580.126.09-" + "x" * 80}, "attribute driverVersion"),
    ],
)
def test_a_version_that_is_none_costs_that_attribute_only(facts, lost):
    pool = build(h100(0), **facts)
    assert "driverVersion" not in only_device(pool)["attributes"]
    assert [dropped.what for dropped in pool.dropped] == [lost]


def test_a_brand_that_the_server_would_refuse_costs_that_attribute_only():
    pool = build(h100(0, brand="x" * 65), h100(1))
    first, second = pool.slices[0].devices
    assert "brand" not in first["attributes"]
    assert second["attributes"]["brand"] == {"string": "Nvidia"}


def test_two_gpus_of_one_minor_cost_the_second_and_not_the_pool():
    """A pool with two devices of one name is not used at all by the scheduler."""
    pool = build(h100(0), h100(0, uuid="GPU-other"), h100(1))
    assert samples.names(pool) == [["gpu-0", "gpu-1"]]
    assert [str(dropped) for dropped in pool.dropped] == ["gpu-0: device: another device of the node has the same name"]


def test_a_partition_with_a_name_that_is_no_dns_label_costs_that_partition():
    odd = partition(0, 1, profile=replace(samples.SMALL_PROFILE, name="1g.10gb/x"))
    pool = build(h100(0, mig_mode=MigMode(current=True, pending=True), mig_devices=(partition(0, 0), odd)))
    assert samples.names(pool) == [["gpu-0-mig-1g10gb-me-20-0"]]
    assert pool.dropped[0].what == "device"


@pytest.mark.parametrize("server", [V1_34, V1_35, V1_36])
def test_sixteen_partitioned_gpus_stay_within_the_servers_limits(server):
    pool = build(*(partitioned(minor) for minor in range(16)), server=server)
    assert pool.device_count == 112
    assert all(len(piece.devices) <= SliceLimits.of(server).devices for piece in pool.slices)


def test_a_taint_moves_no_device_to_another_slice():
    gpus = [partitioned(minor) for minor in range(16)]
    before = build(*gpus)
    after = build(unhealthy(gpus[0]), *gpus[1:])
    assert samples.names(before) == samples.names(after)


machines = st.lists(
    st.tuples(st.integers(0, 40), st.integers(0, 7), st.booleans(), st.booleans()),
    max_size=20,
    unique_by=lambda machine: machine[0],
)


@given(machines, st.sampled_from([V1_34, V1_35, V1_36]), st.randoms(use_true_random=False))
@settings(max_examples=50, deadline=None)
def test_any_machine_gives_legal_slices_that_do_not_depend_on_the_order_of_its_gpus(machines, server, shuffle):
    gpus = [_machine_gpu(*machine) for machine in machines]
    pool = build(*gpus, server=server)
    assert build(*_shuffled(gpus, shuffle), server=server) == pool
    everything = [name for piece in samples.names(pool) for name in piece]
    assert len(everything) == len(set(everything))
    for write in plan_writes(pool, (), owner=samples.OWNER):
        assert refusals(write.body["spec"], SliceLimits.of(server)) == ()


@given(st.text(), st.text(), st.text(), st.integers(), st.integers(0, 2**70))
@settings(max_examples=100, deadline=None)
def test_no_text_or_number_from_the_hardware_can_cost_a_gpu(product, brand, version, numa, memory):
    gpu = h100(0, product_name=product, brand=brand, numa_node=numa, memory_bytes=memory)
    pool = build(gpu, h100(1), driver_version=version)
    assert samples.names(pool) == [["gpu-0", "gpu-1"]]
    for write in plan_writes(pool, (), owner=samples.OWNER):
        assert refusals(write.body["spec"], SliceLimits.of(V1_36)) == ()
        samples.check_payload(write.body)


def _machine_gpu(minor, partitions, whole, well):
    gpu = h100(minor) if whole else partitioned(minor, partitions)
    return gpu if well else unhealthy(gpu)


def _shuffled(gpus: list, shuffle: random.Random) -> list:
    """The same GPUs with their partitions, in another order."""
    mixed = [replace(gpu, mig_devices=tuple(shuffle.sample(gpu.mig_devices, len(gpu.mig_devices)))) for gpu in gpus]
    return shuffle.sample(mixed, len(mixed))
