"""Every DeviceClass on the devices of every machine profile, built by the product, and on devices that are not as they should be."""

from pathlib import Path

import pytest
import yaml

from gpu_dra.kube.api import ServerVersion
from gpu_dra.slices.build import build_slices
from hack.testbed.profiles import load_machine, machine_names
from tests.support.cel import Selector
from tests.support.oracle import check_payload
from tests.support.profile_inventory import cut_inventory_of, inventory_of
from tests.unit.deviceclasses import expected
from tests.unit.deviceclasses.expected import WHOLE

ROOT = Path(__file__).resolve().parents[3]
CLASSES = {
    each["metadata"]["name"]: each
    for file in sorted((ROOT / "deviceclasses").glob("*.yaml"))
    for each in yaml.safe_load_all(file.read_text())
}
SELECTORS = {
    name: [Selector(selector["cel"]["expression"]) for selector in each["spec"]["selectors"]] for name, each in CLASSES.items()
}


def classes_of(device, **where):
    return {name for name, selectors in SELECTORS.items() if all(selector.matches(device, **where) for selector in selectors)}


def devices(inventory):
    pool = build_slices(inventory, node_name="node-a", server_version=ServerVersion(major=1, minor=37))
    assert not pool.dropped
    return [device for piece in pool.slices for device in piece.devices]


def gpu(product="NVIDIA H100 80GB HBM3", memory="81559Mi", **attributes):
    known = {"type": {"string": "gpu"}, "productName": {"string": product}}
    return {"name": "gpu-0", "attributes": {**known, **attributes}, "capacity": {"memory": {"value": memory}}}


def test_no_class_is_there_that_the_table_of_these_tests_does_not_know():
    known = {
        *WHOLE,
        *("mig.nvidia.com", "vfio.gpu.nvidia.com"),
        *expected.NAMES,
        *(f"gpu-mem-{size}" for size in expected.GPU_SIZES),
        *(f"mig-mem-{size}" for size in expected.MIG_SIZES),
        *(f"mig-{slices}g" for slices in (1, 2, 3, 4, 7)),
    }
    assert set(CLASSES) == known


@pytest.mark.parametrize("machine", machine_names())
def test_the_devices_of_a_machine_are_in_exactly_the_classes_of_their_board(machine):
    found = devices(inventory_of(load_machine(machine)))
    assert bool(found) is (machine != "nogpu")
    assert {device["name"]: classes_of(device) for device in found} == {
        device["name"]: expected.classes_of(device) for device in found
    }


@pytest.mark.parametrize("machine", [name for name in machine_names() if (m := load_machine(name)).gpus and m.gpus[0].board.mig])
def test_a_partition_of_every_profile_is_in_exactly_the_classes_of_its_size(machine):
    found = devices(cut_inventory_of(load_machine(machine)))
    assert len(found) >= 5
    assert {device["name"]: classes_of(device) for device in found} == {
        device["name"]: expected.classes_of(device) for device in found
    }


@pytest.mark.parametrize(
    ("name", "product"), [(name, product) for name, products in expected.NAMES.items() for product in products]
)
def test_a_product_is_in_the_class_of_its_model_and_in_no_other(name, product):
    assert classes_of(gpu(product)) & set(expected.NAMES) == {name}


@pytest.mark.parametrize("product", expected.NO_MODEL)
def test_a_product_with_a_name_near_by_is_in_no_class_of_a_model(product):
    """An L40S is no L40, an A10G no A10: what runs on the one may not fit the other."""
    assert classes_of(gpu(product, memory="0")) == WHOLE


@pytest.mark.parametrize(
    ("memory", "classes"),
    [
        ("15237Mi", set()),  # 0.93 × 16 GiB is 15237.12Mi
        ("15238Mi", {"gpu-mem-16"}),
        ("16Gi", {"gpu-mem-16"}),
        ("16106127360", {"gpu-mem-16"}),
        ("76185Mi", {"gpu-mem-16", "gpu-mem-24", "gpu-mem-32", "gpu-mem-40", "gpu-mem-48"}),
        ("1Ti", {f"gpu-mem-{size}" for size in expected.GPU_SIZES}),
    ],
)
def test_a_memory_class_begins_at_93_hundredths_of_its_size_and_has_no_end(memory, classes):
    assert classes_of(gpu("NVIDIA X", memory)) - WHOLE == classes


@pytest.mark.parametrize(
    "device",
    [
        {"name": "bare"},
        {"name": "empty", "attributes": {}, "capacity": {}},
        {"name": "odd", "attributes": {"type": {"string": "daemon"}}},
        {"name": "upper", "attributes": {"type": {"string": "GPU"}}},
        {"name": "number", "attributes": {"type": {"int": 0}}},
        {"name": "elsewhere", "attributes": {"resource.kubernetes.io/type": {"string": "gpu"}}},
    ],
    ids=lambda device: device["name"],
)
def test_a_device_without_a_type_we_know_is_in_no_class_and_no_class_fails_on_it(device):
    """An error in one selector keeps its pod pending on every node."""
    assert classes_of(device) == set()


def test_a_gpu_of_which_only_the_type_is_known_is_a_gpu_and_nothing_more():
    assert classes_of({"name": "gpu-0", "attributes": {"type": {"string": "gpu"}}}) == WHOLE


def test_a_partition_of_which_only_the_type_is_known_is_a_partition_and_nothing_more():
    assert classes_of({"name": "mig", "attributes": {"type": {"string": "mig"}}}) == {"mig.nvidia.com"}


@pytest.mark.parametrize("kind", ["gpu", "mig", "vfio"])
def test_a_device_of_another_driver_is_in_no_class_whatever_it_says(kind):
    attributes = {"type": "mig", "productName": "NVIDIA H100", "profile": "1g.10gb"} | {"type": kind}
    qualified = {f"gpu.nvidia.com/{name}": {"string": value} for name, value in attributes.items()}
    device = {"name": "x", "attributes": qualified, "capacity": {"gpu.nvidia.com/memory": {"value": "1Ti"}}}
    assert classes_of(device, driver="gpu.nvidia.com") != set()
    assert classes_of(device, driver="gpu.example.com") == set()
    assert classes_of({"name": "bare"}, driver="gpu.example.com") == set()


def test_a_gpu_for_virtual_machines_is_in_nvidias_class_only():
    assert classes_of(gpu(type={"string": "vfio"})) == {"vfio.gpu.nvidia.com"}


def test_a_partition_with_ten_or_more_slices_is_not_taken_for_one_slice():
    assert classes_of({"name": "m", "attributes": {"type": {"string": "mig"}, "profile": {"string": "14g.5gb"}}}) == {
        "mig.nvidia.com"
    }


def test_only_whole_gpus_of_any_model_answer_to_the_extended_resource():
    """Of several classes with one resource name the newest would win."""
    assert {name: spec for name, each in CLASSES.items() if (spec := each["spec"].get("extendedResourceName"))} == {
        "gpu.nvidia.com": "nvidia.com/gpu"
    }


def test_every_manifest_is_a_device_class_in_the_eyes_of_the_official_client():
    for each in CLASSES.values():
        check_payload(each)


def test_the_chart_carries_the_same_classes_and_no_templates():
    chart = (ROOT / "helm" / "gpu-dra" / "files" / "deviceclasses.yaml").read_text()
    assert {each["metadata"]["name"]: each for each in yaml.safe_load_all(chart)} == CLASSES
    assert "{{" not in chart
