"""Every DeviceClass, judged by the API server and used by the scheduler, on nodes that are objects only: no kubelet, no driver.

There are as many nodes of a machine as it takes for every class to get a device, whichever the scheduler gives to the others.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from gpu_dra.kube.api import ServerVersion
from gpu_dra.slices.build import build_slices
from gpu_dra.slices.plan import Create, NodeOwner, plan_writes
from hack.testbed.cluster import teardown
from hack.testbed.cluster.errors import say_on_stderr
from hack.testbed.cluster.lab import Lab
from hack.testbed.cluster.spec import NodeSpec, Wishes
from hack.testbed.profiles import load_machine
from tests.cluster.cluster import Cluster
from tests.support.profile_inventory import cut_inventory_of, inventory_of
from tests.unit.deviceclasses import expected

if TYPE_CHECKING:
    from collections.abc import Iterator

Object = dict[str, Any]

MANIFESTS = Path(__file__).resolve().parents[2] / "deviceclasses"
WHOLE = ("t4x1", "l4x4", "a100x8", "h100x8-mig-mixed", "h200x8", "gb300x4")
CUT = ("a100x8", "a30x4", "h200x8", "gb300x4")
MONITORING = "gpu-monitoring"


def _desired(node: str, profile: str, *, cut: bool) -> Any:
    machine = load_machine(profile, seed=node)
    inventory = cut_inventory_of(machine) if cut else inventory_of(machine)
    return build_slices(inventory, node_name=node, server_version=ServerVersion(major=1, minor=34))


def _pools() -> Iterator[Any]:
    """Pools of one machine after another, repeated until no class can take the last device of another."""
    for profile, cut in [*((profile, False) for profile in WHOLE), *((profile, True) for profile in CUT)]:
        count: Counter[frozenset[str]] = Counter()
        for number in range(32):
            pool = _desired(f"{profile}{'-cut' * cut}-{number}", profile, cut=cut)
            yield pool
            count.update(frozenset(expected.classes_of(device)) for piece in pool.slices for device in piece.devices)
            if all(devices >= len(classes) for classes, devices in count.items()):
                break


def _node(name: str) -> Object:
    amounts = {"cpu": "64", "memory": "256Gi", "pods": "250"}
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "an object of a test"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "status": {"capacity": amounts, "allocatable": amounts, "conditions": [ready]},
    }


def _hostile(node: str) -> Iterator[Object]:
    """Devices of which a careless selector would fail, and then keep its pod pending on every node."""
    bare = [{"name": "bare"}, {"name": "odd", "attributes": {"type": {"string": "daemon"}}}]
    names = {"type": "gpu", "productName": "NVIDIA H100", "profile": "1g.10gb"}
    foreign = {
        "name": "gpu-0",
        "attributes": {f"gpu.nvidia.com/{name}": {"string": value} for name, value in names.items()},
        "capacity": {"gpu.nvidia.com/memory": {"value": "1Ti"}},
    }
    for driver, devices in (("gpu.nvidia.com", bare), ("gpu.example.com", [{"name": "bare"}, foreign])):
        pool = {"name": f"{node}-{driver}", "generation": 1, "resourceSliceCount": 1}
        yield {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {"generateName": "hostile-"},
            "spec": {"driver": driver, "nodeName": node, "pool": pool, "devices": devices},
        }


def _claim(name: str) -> Object:
    wish: Object = {"deviceClassName": name}
    if name == MONITORING:
        wish |= {"adminAccess": True, "allocationMode": "All"}
    request = {"name": "device", "exactly": wish}
    metadata = {"name": name}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": metadata,
        "spec": {"devices": {"requests": [request]}},
    }


def _pod(name: str) -> Object:
    container = {"name": "c", "image": "none", "resources": {"claims": [{"name": "device"}]}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "containers": [container],
            "resourceClaims": [{"name": "device", "resourceClaimName": name}],
            "tolerations": [{"operator": "Exists"}],  # no heartbeat will come from these nodes
        },
    }


def _create(lab: Lab, objects: list[Object]) -> None:
    lab.kubectl("create", "-f", "-", stdin=yaml.safe_dump_all(objects))


@pytest.fixture(scope="module", params=["1.37", "1.34"])
def cluster(request) -> Iterator[Cluster]:
    """A control plane with the classes, and the nodes and slices of many machines."""
    name = f"cls{request.param.replace('.', '')}"
    teardown.down(name, say=say_on_stderr)  # what a killed run left
    try:
        lab = Lab.up(Wishes(name=name, kubernetes=request.param, nodes=(NodeSpec(name="node-a"),)))
        lab.kubectl("label", "namespace", "default", "resource.kubernetes.io/admin-access=true")
        lab.kubectl("apply", "-f", str(MANIFESTS))
        pools = list(_pools())
        _create(lab, [_node(pool.node_name) for pool in pools] + [_node("hostile")])
        uids = {
            node["metadata"]["name"]: node["metadata"]["uid"]
            for node in json.loads(lab.kubectl("get", "nodes", "-o", "json"))["items"]
        }
        slices = list(_hostile("hostile"))
        for pool in pools:
            writes = plan_writes(pool, (), owner=NodeOwner(name=pool.node_name, uid=uids[pool.node_name]))
            slices += [write.body for write in writes if isinstance(write, Create)]
        _create(lab, slices)
        yield Cluster(lab=lab, drivers={})
    finally:
        teardown.down(name, say=say_on_stderr)


def _verdicts(cluster: Cluster, pods: set[str]) -> dict[str, str]:
    """What the scheduler said of each pod; empty until it has spoken of all."""
    found = {}
    for pod in cluster.items("pods"):
        for condition in pod["status"].get("conditions", ()):
            if condition["type"] == "PodScheduled":
                found[pod["metadata"]["name"]] = condition.get("reason") or condition["status"]
    return found if set(found) == pods else {}


def test_a_class_gives_a_device_of_its_kind_and_without_one_its_pod_stays_pending(cluster):
    devices = {
        (piece["spec"]["driver"], piece["spec"]["pool"]["name"], device["name"]): device
        for piece in cluster.slices()
        for device in piece["spec"]["devices"]
    }
    ours = {key: expected.classes_of(device) for key, device in devices.items() if "uuid" in device.get("attributes", {})}
    present = set().union(*ours.values())
    names = {each["metadata"]["name"] for each in cluster.items("deviceclasses")}
    assert present < names

    cluster.apply(*map(_claim, sorted(names)))
    cluster.apply(*map(_pod, sorted(names)))

    def settled() -> dict[str, str]:
        verdicts = _verdicts(cluster, names)
        return verdicts if {name for name, verdict in verdicts.items() if verdict == "True"} >= present else {}

    verdicts = cluster.wait("a verdict on every pod", settled, within=90)
    assert verdicts == {name: "True" if name in present else "Unschedulable" for name in names}
    for claim in cluster.items("resourceclaims"):
        name = claim["metadata"]["name"]
        results = claim.get("status", {}).get("allocation", {}).get("devices", {}).get("results", [])
        given = [(result["driver"], result["pool"], result["device"]) for result in results]
        assert bool(given) is (name in present), name
        assert all(name in ours.get(key, ()) for key in given), (name, given)
        if name == MONITORING:
            assert set(given) == {key for key in ours if key[1] == given[0][1] and name in ours[key]}
