"""One bad GPU, one refused fact, one odd partition: each costs itself and nothing else."""

from __future__ import annotations

from uuid import UUID

import pytest

from gpu_dra.hardware.fake import Fault
from gpu_dra.hardware.nvml import FabricInfo, FabricState
from gpu_dra.hardware.scan import scan
from gpu_dra.model.gpu import Fabric
from gpu_dra.model.mig import Placement

IDENTITY = ("gpu", "uuid", "pci", "minor", "name")
ESSENTIAL = (*IDENTITY, "mig_mode")
OPTIONAL = {
    "brand": "brand",
    "architecture": "architecture",
    "cuda_compute_capability": "cuda_compute_capability",
    "memory_bytes": "memory_bytes",
    "addressing_mode": "addressing_mode",
    "fabric": "fabric",
    "recovery_action": "unhealthy",
}
NOT_SUPPORTED, NO_PERMISSION, NOT_FOUND, GPU_LOST, UNKNOWN = 3, 4, 6, 15, 999


@pytest.fixture
def look(nvml, host):
    nvml.open()

    def look(*, known=None, skip=None):
        return scan(nvml, host, known=known or {}, skip=skip or {})

    return look


def partition(nvml, index, kind, placement=None):
    gpu = nvml.gpu(index)
    nvml.set_mig_mode(gpu, enabled=True)
    profile = nvml.gpu_instance_profile(gpu, kind).profile.profile_id
    instance = nvml.create_gpu_instance(gpu, profile, placement)
    nvml.create_compute_instance(instance, kind)
    return instance


def test_a_healthy_machine_is_described_in_full(look):
    inventory = look().inventory
    assert [gpu.name for gpu in inventory.gpus] == [f"gpu-{minor}" for minor in range(8)]
    gpu = inventory.gpus[0]
    assert (gpu.brand, gpu.architecture, gpu.addressing_mode) == ("Nvidia", "Hopper", "HMM")
    assert inventory.driver_version == "580.105.08"
    assert not inventory.faults
    assert not inventory.warnings


@pytest.mark.parametrize("code", [NOT_SUPPORTED, NO_PERMISSION, GPU_LOST, UNKNOWN])
@pytest.mark.parametrize("method", [*ESSENTIAL, *OPTIONAL])
def test_an_error_on_one_gpu_never_hides_another(nvml, look, method, code):
    nvml.order(Fault(method, code=code, gpu=3))
    inventory = look().inventory
    described = {gpu.minor for gpu in inventory.gpus}
    assert described >= {0, 1, 2, 4, 5, 6, 7}
    assert len(described) + len(inventory.faults) == 8


@pytest.mark.parametrize("method", ESSENTIAL)
def test_a_gpu_that_cannot_be_identified_is_a_fault_with_a_reason(nvml, look, method):
    """Its MIG mode belongs to that: a GPU that may be partitioned must not be offered whole."""
    nvml.order(Fault(method, code=UNKNOWN, gpu=3))
    (fault,) = look().inventory.faults
    assert method in fault.reason
    assert "999" in fault.reason


@pytest.mark.parametrize(("method", "field"), OPTIONAL.items())
def test_a_fact_the_gpu_does_not_have_is_left_out_silently(nvml, look, method, field):
    nvml.order(Fault(method, code=NOT_SUPPORTED, gpu=3))
    inventory = look().inventory
    assert getattr(inventory.gpus[3], field) is None
    assert not inventory.warnings


@pytest.mark.parametrize(("method", "field"), OPTIONAL.items())
def test_a_fact_that_nvml_fails_to_say_is_left_out_with_one_warning(nvml, look, method, field):
    nvml.order(Fault(method, code=UNKNOWN, gpu=3))
    inventory = look().inventory
    assert getattr(inventory.gpus[3], field) is None
    (warning,) = inventory.warnings
    assert "gpu-3" in warning


def test_a_gpu_without_mig_has_no_mig_mode(nvml, look):
    nvml.order(Fault("mig_mode", code=NOT_SUPPORTED, gpu=3))
    inventory = look().inventory
    assert inventory.gpus[3].mig_mode is None
    assert not inventory.warnings


def test_a_minor_that_nvml_does_not_know_comes_from_the_kernel_driver(nvml, look, host):
    nvml.order(Fault("minor", code=NOT_SUPPORTED, gpu=3))
    information = host.proc / "driver/nvidia/gpus/0000:61:00.0/information"
    information.parent.mkdir(parents=True)
    information.write_text("Model: \t\t NVIDIA H100 80GB HBM3\nDevice Minor: \t 3\n")
    inventory = look().inventory
    assert [gpu.minor for gpu in inventory.gpus] == list(range(8))


def test_a_gpu_that_was_known_and_is_lost_stays_as_unhealthy(nvml, look):
    """Its claims go on being known by its name, and the kubelet hears why."""
    before = look()
    nvml.gpus[3].lost = True
    after = look(known=before.by_index).inventory
    assert after.gpus[3].uuid == before.inventory.gpus[3].uuid
    assert "lost" in after.gpus[3].unhealthy
    assert not after.faults


def test_a_gpu_to_skip_is_not_touched(nvml, look):
    before = look()
    nvml.order(Fault("uuid", code=UNKNOWN, gpu=3))
    after = look(known=before.by_index, skip={3: "hangs"}).inventory
    assert after.gpus[3].unhealthy == "hangs"


def test_a_recovery_action_makes_a_gpu_unhealthy_and_says_what_to_do(nvml, look):
    nvml.gpus[3].recovery_action = 1
    assert "nvidia-smi --gpu-reset" in look().inventory.gpus[3].unhealthy


def test_an_unknown_recovery_action_is_told_by_its_number(nvml, look):
    nvml.gpus[3].recovery_action = 42
    assert "42" in look().inventory.gpus[3].unhealthy


def test_a_gpu_in_mig_mode_is_never_offered_whole(nvml, look):
    nvml.set_mig_mode(nvml.gpu(3), enabled=True)
    inventory = look().inventory
    assert "gpu-3" not in [device.name for device in inventory.devices()]
    assert inventory.find("gpu-3") is None
    assert "gpu-3" in inventory.warnings[0]


def test_partitions_are_named_by_profile_and_place(nvml, look):
    partition(nvml, 3, 2, Placement(start=4, size=4))
    partition(nvml, 3, 0, Placement(start=0, size=1))
    names = [device.name for device in look().inventory.gpus[3].mig_devices]
    assert names == ["gpu-3-mig-1g10gb-19-0", "gpu-3-mig-3g40gb-9-4"]


def test_a_compute_instance_that_does_not_fill_its_gpu_instance_is_left_out(nvml, look):
    gpu = nvml.gpu(3)
    nvml.set_mig_mode(gpu, enabled=True)
    nvml.create_compute_instance(nvml.create_gpu_instance(gpu, 9, None), 0)
    inventory = look().inventory
    assert inventory.gpus[3].mig_devices == ()
    assert "does not fill" in inventory.warnings[0]


def test_a_partition_that_errors_costs_itself_alone(nvml, look):
    partition(nvml, 3, 0, Placement(start=0, size=1))
    partition(nvml, 3, 0, Placement(start=1, size=1))
    nvml.order(Fault("mig_device_info", code=UNKNOWN, gpu=3, times=1))
    inventory = look().inventory
    assert len(inventory.gpus[3].mig_devices) == 1
    assert len(inventory.warnings) == 1


def test_a_complete_fabric_of_several_nodes_is_described(nvml, look):
    fabric = FabricInfo(state=FabricState.COMPLETED, status=0, cluster_uuid=UUID(int=7), clique=32766)
    nvml.gpus[0].fabric = fabric
    assert look().inventory.gpus[0].fabric == Fabric(cluster_uuid=str(UUID(int=7)), clique=32766)


@pytest.mark.parametrize(
    "fabric",
    [
        FabricInfo(state=FabricState.COMPLETED, status=0, cluster_uuid=UUID(int=0), clique=0),
        FabricInfo(state=FabricState.COMPLETED, status=3, cluster_uuid=UUID(int=7), clique=1),
        FabricInfo(state=FabricState.IN_PROGRESS, status=0, cluster_uuid=UUID(int=7), clique=1),
    ],
)
def test_a_fabric_of_one_box_or_one_not_ready_is_no_fabric(nvml, look, fabric):
    """A single HGX box reports a complete fabric with an all-zero cluster UUID."""
    nvml.gpus[0].fabric = fabric
    assert look().inventory.gpus[0].fabric is None


def test_root_and_numa_node_come_from_sysfs(look, pci_device):
    pci_device("0000:1b:00.0", root="pci0000:15", numa=1)
    gpu = look().inventory.gpus[0]
    assert (gpu.pcie_root, gpu.numa_node) == ("pci0000:15", 1)


def test_a_platform_without_numa_leaves_the_node_out(look, pci_device):
    pci_device("0000:1b:00.0", numa=-1)
    assert look().inventory.gpus[0].numa_node is None


def test_a_gpu_that_is_bound_but_not_listed_is_a_fault(look, pci_device):
    pci_device("0000:aa:00.0")
    (fault,) = look().inventory.faults
    assert fault.where == "0000:aa:00.0"
