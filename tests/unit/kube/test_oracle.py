"""The oracle sees what a server would silently drop; an oracle that takes everything would prove nothing."""

import copy

import pytest

from tests.support.oracle import check_payload

SLICE = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceSlice",
    "metadata": {"name": "a"},
    "spec": {
        "driver": "gpu.nvidia.com",
        "nodeName": "a",
        "pool": {"name": "a", "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": "gpu-0", "attributes": {"uuid": {"string": "GPU-1"}}, "capacity": {"memory": {"value": "80Gi"}}}],
    },
}


def changed(path, value):
    item = copy.deepcopy(SLICE)
    at = item
    for part in path[:-1]:
        at = at[part]
    at[path[-1]] = value
    return item


def test_a_right_payload_passes():
    check_payload(SLICE)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("spec", "nodename"), "a"),
        (("spec", "pool", "count"), 1),
        (("spec", "devices", 0, "attribute"), {}),
        (("spec", "devices", 0, "attributes", "uuid", "str"), "x"),
        (("spec", "devices", 0, "capacity", "memory"), {"value": 80}),
        (("spec", "pool", "generation"), "1"),
        (("metadata", "lables"), {}),
    ],
    ids=lambda value: ".".join(map(str, value)) if isinstance(value, tuple) else None,
)
def test_a_misspelt_or_mistyped_field_is_found(path, value):
    with pytest.raises(ValueError, match=str(path[-1])):
        check_payload(changed(path, value))


def test_a_missing_required_field_is_found():
    payload = copy.deepcopy(SLICE)
    del payload["spec"]["driver"]
    with pytest.raises(ValueError, match="driver"):
        check_payload(payload)
