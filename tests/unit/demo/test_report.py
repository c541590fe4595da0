"""The demo and the cluster tests believe a container only when it lists exactly its claim."""

import pytest

from hack.demo.main import sample_names
from hack.demo.report import allocated_devices, claims_of, published_devices, row

GPU = "GPU-aaaa"
MIG = "MIG-bbbb"
PARENT = "GPU-cccc"
POD = {"metadata": {"name": "p"}, "spec": {"nodeName": "node-a"}}
SLICE = {
    "spec": {
        "pool": {"name": "node-a"},
        "devices": [
            {"name": "gpu-0", "attributes": {"uuid": {"string": GPU}, "productName": {"string": "H100"}}},
            {
                "name": "gpu-1-mig-1g10gb-19-0",
                "attributes": {
                    "uuid": {"string": MIG},
                    "parentUUID": {"string": PARENT},
                    "productName": {"string": "H100"},
                    "profile": {"string": "1g.10gb"},
                },
            },
        ],
    }
}
GPU_LINE = f"GPU 0: H100 (UUID: {GPU})"
MIG_LINES = f"GPU 0: H100 (UUID: {PARENT})\n  MIG 1g.10gb     Device  0: (UUID: {MIG})"


def allocated(*names):
    results = [{"pool": "node-a", "device": name} for name in names]
    return allocated_devices({"status": {"allocation": {"devices": {"results": results}}}}, published_devices([SLICE]))


@pytest.mark.parametrize(
    ("names", "output"),
    [
        (["gpu-0"], GPU_LINE),
        (["gpu-1-mig-1g10gb-19-0"], MIG_LINES),
        (["gpu-0", "gpu-1-mig-1g10gb-19-0"], f"{GPU_LINE}\n{MIG_LINES}"),
    ],
)
def test_a_container_that_lists_its_claim_is_right(names, output):
    assert row(POD, output, allocated(*names)).right


@pytest.mark.parametrize(
    ("names", "output", "verdict"),
    [
        (["gpu-0"], "", f"does not see {GPU}"),
        (["gpu-0"], f"{GPU_LINE}\nGPU 1: H100 (UUID: GPU-other)", "sees GPU-other, which it was not given"),
        (["gpu-0"], MIG_LINES, f"does not see {GPU}"),
        (["gpu-1-mig-1g10gb-19-0"], f"GPU 0: H100 (UUID: {PARENT})", f"does not see {MIG}"),
        ([], "", "has no allocated claim"),
    ],
)
def test_too_much_and_too_little_are_both_told(names, output, verdict):
    result = row(POD, output, allocated(*names))
    assert not result.right
    assert verdict in result.verdict()


def test_generated_claims_are_found_through_the_pods_status():
    pod = {
        "spec": {"resourceClaims": [{"name": "a", "resourceClaimName": "mine"}, {"name": "b", "resourceClaimTemplateName": "t"}]},
        "status": {"resourceClaimStatuses": [{"name": "b", "resourceClaimName": "p-b-xyz"}]},
    }
    assert claims_of(pod) == ["mine", "p-b-xyz"]


def test_a_gpu_that_was_withdrawn_since_is_named_and_no_traceback():
    """A server before 1.36 drops taints, so a lost GPU is withdrawn there while its pod still holds it."""
    claim = {"status": {"allocation": {"devices": {"results": [{"pool": "node-a", "device": "gpu-9"}]}}}}
    (device,) = allocated_devices(claim, {})
    assert (device.name, device.what) == ("gpu-9", "no longer published")


def test_the_demo_knows_its_own_pods_from_a_persons():
    assert {"one-gpu", "no-such-model"} <= sample_names()
    assert len(sample_names()) == 10
