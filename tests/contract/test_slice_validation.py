"""Our rules for slices give the API server's verdict, and what they let through is what the server takes.

The verdicts of the table are held against a real server in `test_slice_validation_real.py`.
"""

import pytest

from gpu_dra.kube.api import ServerVersion
from gpu_dra.slices.limits import SliceLimits
from gpu_dra.slices.validate import refusals, sanitize
from tests.contract.hostile_slices import CASES

LIMITS = SliceLimits.of(ServerVersion(major=1, minor=37))
OLD_LIMITS = SliceLimits.of(ServerVersion(major=1, minor=34))
BY_NAME = {case.name: case for case in CASES}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_our_verdict_is_that_of_the_api_server(case):
    reasons = refusals(case.spec, LIMITS)
    assert (reasons == ()) is case.taken, reasons


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_devices_are_sanitized_into_a_slice_that_is_taken(case):
    """Whatever the hardware says, the devices that are left can be published, at most 64 in a slice."""
    kept, _ = sanitize(case.spec["devices"], LIMITS)
    spec = {**BY_NAME["no devices"].spec, "devices": list(kept[: LIMITS.devices])}
    assert refusals(spec, LIMITS) == ()


@pytest.mark.parametrize("case", [case for case in CASES if case.taken], ids=lambda case: case.name)
def test_nothing_is_taken_from_devices_the_server_would_take(case):
    kept, dropped = sanitize(case.spec["devices"], LIMITS)
    assert dropped == ()
    assert [device["name"] for device in kept] == [device["name"] for device in case.spec["devices"]]


@pytest.mark.parametrize(
    "name",
    ["string of 65 bytes", "version with a leading zero", "identifier with a dash", "two values", "capacity that is no quantity"],
)
def test_a_bad_value_costs_that_value_and_is_reported(name):
    (kept,), (dropped,) = sanitize(BY_NAME[name].spec["devices"], LIMITS)
    assert kept == {"name": "gpu-0", "attributes": {}, "capacity": {}}
    assert dropped.device == "gpu-0"
    assert dropped.what.startswith(("attribute ", "capacity "))


@pytest.mark.parametrize("name", ["device name in upper case", "taint value with a space", "17 taints", "taint effect of nodes"])
def test_a_device_that_cannot_be_offered_as_meant_is_not_offered(name):
    """Without its taint a sick GPU would look well."""
    kept, (dropped, *_) = sanitize(BY_NAME[name].spec["devices"], LIMITS)
    assert kept == ()
    assert dropped.what == "device"


@pytest.fixture
def crowded():
    """A partition of an imagined board with 12 memory slices, with two attributes of an administrator: 37 entries."""
    strings = (
        "type",
        "uuid",
        "parentUUID",
        "profile",
        "productName",
        "brand",
        "architecture",
        "addressingMode",
        "fabricClusterUUID",
    )
    versions = ("cudaComputeCapability", "driverVersion", "cudaDriverVersion")
    attributes = {
        **{name: {"string": "x"} for name in strings},
        **{name: {"version": "1.0.0"} for name in versions},
        **{f"resource.kubernetes.io/{name}": {"string": "x"} for name in ("pciBusID", "pcieRoot")},
        **{name: {"int": 1} for name in ("resource.kubernetes.io/numaNode", "fabricCliqueID", "rack", "example.com/shelf")},
    }
    engines = ("multiprocessors", "copyEngines", "decoders", "encoders", "jpegEngines", "ofaEngines")
    capacity = {name: {"value": "1"} for name in ("memory", *engines, *(f"memorySlice{index}" for index in range(12)))}
    return {"name": "gpu-0", "attributes": attributes, "capacity": capacity}


def test_where_there_is_no_room_for_all_the_dispensable_go_first_and_are_reported(crowded):
    """An administrator's attributes, then the fabric's, then addressingMode and brand."""
    (kept,), dropped = sanitize([crowded], LIMITS)
    assert [item.what for item in dropped] == [
        "attribute example.com/shelf",
        "attribute rack",
        "attribute fabricCliqueID",
        "attribute fabricClusterUUID",
        "attribute addressingMode",
    ]
    assert len(kept["attributes"]) + len(kept["capacity"]) == 32


def test_what_nobody_can_do_without_is_kept_however_crowded_a_device_is(crowded):
    crowded["capacity"] |= {f"memorySlice{index}": {"value": "1"} for index in range(12, 32)}
    (kept,), _ = sanitize([crowded], LIMITS)
    assert {"type", "uuid", "parentUUID", "profile", "productName"} <= kept["attributes"].keys()
    assert "memory" in kept["capacity"]


def test_a_name_with_two_slashes_is_left_out_though_some_servers_take_it():
    """Kubernetes up to 1.37.2 overlooks it, its successor refuses the slice."""
    (kept,), (dropped,) = sanitize([{"name": "gpu-0", "attributes": {"example.com/a/b": {"int": 1}}}], LIMITS)
    assert kept["attributes"] == {}
    assert dropped.what == "attribute example.com/a/b"


def test_kubernetes_1_34_takes_four_taints_and_no_effect_none():
    four = [{"key": f"k{index}", "effect": "NoSchedule"} for index in range(5)]
    assert sanitize([{"name": "a", "taints": four}], OLD_LIMITS)[0] == ()
    assert sanitize([{"name": "a", "taints": four[:4]}], OLD_LIMITS)[0] != ()
    assert sanitize([{"name": "a", "taints": [{"key": "k", "effect": "None"}]}], OLD_LIMITS)[0] == ()
