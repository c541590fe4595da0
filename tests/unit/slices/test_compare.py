"""When two slices say the same."""

import pytest

from gpu_dra.slices.compare import fingerprint, lost_fields, same_spec
from tests.unit.slices.samples import device

TAINT = {"key": "gpu.nvidia.com/unhealthy", "effect": "NoSchedule"}


def spec(*devices, **fields):
    return {
        "driver": "d",
        "nodeName": "n",
        "pool": {"name": "n", "generation": 1, "resourceSliceCount": 1},
        "devices": list(devices),
        **fields,
    }


@pytest.mark.parametrize(
    ("sent", "stored"),
    [
        (device("a", capacity={"memory": {"value": "1024Mi"}}), device("a", capacity={"memory": {"value": "1Gi"}})),
        (device("a", capacity={}), {"name": "a", "attributes": {"type": {"string": "gpu"}}}),
        (device("a", taints=[TAINT]), device("a", taints=[{**TAINT, "timeAdded": "2026-01-01T00:00:00Z"}])),
        (device("a", taints=[]), device("a")),
    ],
)
def test_two_forms_of_the_same_device_are_equal(sent, stored):
    assert same_spec(spec(sent), spec(stored))
    assert fingerprint(sent) == fingerprint(stored)
    assert lost_fields(sent, stored) == frozenset()


@pytest.mark.parametrize(
    ("sent", "stored", "lost"),
    [
        (device("a", taints=[TAINT]), device("a"), {"taints"}),
        (device("a", taints=[{**TAINT, "value": "1k"}]), device("a", taints=[{**TAINT, "value": "1000"}]), {"taints"}),
        (device("a"), device("a", capacity={"memory": {"value": "81Gi"}}), {"capacity"}),
        (device("a"), device("a", attributes={"type": {"string": "mig"}}), {"attributes"}),
        (device("a", attributes={"x": {"int": 0}}), device("a", attributes={"x": {"bool": False}}), {"attributes"}),
    ],
)
def test_a_difference_that_a_scheduler_would_see_is_seen_and_named(sent, stored, lost):
    assert not same_spec(spec(sent), spec(stored))
    assert fingerprint(sent) != fingerprint(stored)
    assert lost_fields(sent, stored) == lost


def test_the_order_of_devices_counts():
    """The scheduler takes the first that fits."""
    assert not same_spec(spec(device("a"), device("b")), spec(device("b"), device("a")))


def test_counters_left_by_another_driver_are_a_difference():
    assert not same_spec(spec(device("a")), spec(device("a"), sharedCounters=[{"name": "c", "counters": {"x": {"value": "1"}}}]))


def test_a_slice_without_devices_equals_one_with_an_empty_list():
    without = spec()
    del without["devices"]
    assert same_spec(spec(), without)
