"""The admission policies let each account touch its own node only, and there one thing only; nobody else is in their way.

With the release as it is called in the documentation, and as Helm calls things where a release or a name was chosen.
"""

from __future__ import annotations

import contextlib
import copy
import json
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest

from tests.cluster.rights import GPU_NODES, OTHER, OWN, SLICES, Rights, a_gpu_node, a_slice, rendered, rights_lab

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.cluster.rights import Object, User

NAMES = {
    "documented": ("gpu-dra", (), "gpu-dra"),
    "release": ("x", (), "x-gpu-dra"),
    "override": ("x", ("--set", "fullnameOverride=y"), "y"),
}
MINE_ONLY = f"the GPU plugin of node {OWN} may write ResourceSlices of its own node only, not of "
TERMS = [{"matchExpressions": [{"key": "a", "operator": "Exists"}]}]
ELSEWHERE = {
    "another node": ({"nodeName": OTHER}, f"node {OTHER}"),
    "all nodes": ({"allNodes": True}, "the whole cluster"),
    "chosen nodes": ({"nodeSelector": {"nodeSelectorTerms": TERMS}}, "the whole cluster"),
    "nodes by device": ({"perDeviceNodeSelection": True}, "the whole cluster"),
}


@pytest.fixture(scope="module")
def labs() -> Iterator[Callable[[str], Rights]]:
    """A lab for each version that is asked for. 1.34 has slices with nodes by device behind a gate."""
    with contextlib.ExitStack() as stack:
        gates = {"1.34": "DRAPartitionableDevices=true"}
        yield cache(lambda version: stack.enter_context(rights_lab("ctpol" + version[-2:], version, gates=gates.get(version))))


@pytest.fixture(scope="module", params=[*(("1.37", name) for name in NAMES), ("1.34", "documented")], ids="-".join)
def rights(labs: Callable[[str], Rights], request: pytest.FixtureRequest) -> Rights:
    """One release after the other in the lab of its version."""
    version, name = request.param
    release, flags, full = NAMES[name]
    named = replace(labs(version), full=full)
    named.apply(*rendered(named.lab, release, *flags))
    named.await_policies()
    return named


@pytest.fixture
def plugin(rights: Rights) -> User:
    return rights.user("node", node=OWN)


@pytest.fixture(params=["v1", "v1beta2", "v1beta1"])
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def slices(version: str) -> str:
    return SLICES.replace("/v1/", f"/{version}/")


@pytest.fixture
def theirs(rights: Rights, slices: str, version: str) -> Iterator[Object]:
    """A slice of the other node, by its own plugin."""
    yield rights.user("node", node=OTHER).may("POST", slices, a_slice(version, "theirs", nodeName=OTHER))
    rights.admin.ask("DELETE", f"{SLICES}/theirs")


def test_the_plugin_writes_slices_of_its_own_node(plugin, slices, version):
    made = plugin.may("POST", slices, a_slice(version, nodeName=OWN))
    made["spec"]["pool"]["generation"] = 2
    plugin.may("PUT", f"{slices}/try", made)
    plugin.may("DELETE", f"{slices}/try")


@pytest.mark.parametrize("where", ELSEWHERE)
def test_the_plugin_makes_no_slice_elsewhere(plugin, slices, version, where):
    place, words = ELSEWHERE[where]
    plugin.may_not("POST", slices, a_slice(version, **place), why=MINE_ONLY + words)


def test_the_plugin_writes_no_pool_of_another_node_and_for_no_other_driver(rights, plugin, slices, version):
    """Allocations are counted by driver, pool and device: pods of one node would use up the GPUs of another."""
    stolen = a_slice(version, nodeName=OWN)
    stolen["spec"]["pool"]["name"] = OTHER
    plugin.may_not("POST", slices, stolen, why="in the pool of its own node only")
    foreign = a_slice(version, nodeName=OWN)
    foreign["spec"]["driver"] = "nic.example.com"
    plugin.may_not("POST", slices, foreign, why="of the driver gpu.nvidia.com")
    rights.admin.may("POST", slices, foreign)
    try:
        plugin.may_not("DELETE", f"{slices}/try", why="of the driver gpu.nvidia.com")
        rights.user("uninstall", node=OWN).may_not("DELETE", f"{slices}/try", why="of the driver gpu.nvidia.com")
    finally:
        rights.admin.may("DELETE", f"{SLICES}/try")


def test_the_plugin_changes_and_deletes_no_slice_of_another_node(plugin, slices, theirs):
    why = f"{MINE_ONLY}node {OTHER}"
    changed = copy.deepcopy(theirs)
    changed["spec"]["pool"]["generation"] = 2
    plugin.may_not("PUT", f"{slices}/theirs", changed, why=why)
    plugin.may_not("DELETE", f"{slices}/theirs", why=why)


@pytest.mark.parametrize(("before", "after"), [(OWN, OTHER), (OTHER, OWN)])
def test_a_slice_is_not_moved_between_nodes(rights, plugin, slices, version, before, after):
    """Kubernetes sees to that by itself, before it asks any policy: `ValidateResourceSliceUpdate`."""
    made = rights.admin.may("POST", slices, a_slice(version, nodeName=before))
    try:
        made["spec"]["nodeName"] = after
        plugin.may_not("PUT", f"{slices}/try", made, why="spec.nodeName: Invalid value")
    finally:
        rights.admin.may("DELETE", f"{SLICES}/try")


def test_a_token_that_belongs_to_no_pod_writes_nothing(rights, theirs, slices, version):
    stolen = rights.user("node", node="")
    stolen.may_not("POST", slices, a_slice(version, nodeName=OWN), why="names no node; it must be that of a pod")
    stolen.may_not("DELETE", f"{slices}/theirs", why="names no node")
    stolen.may_not("PUT", f"/api/v1/nodes/{OWN}/status", rights.node(OWN), why="its own node only")
    rights.user("detector", node="").may_not("PUT", f"/api/v1/nodes/{OWN}", rights.node(OWN), why="its own node only")


def test_others_are_not_hindered(rights, theirs, slices, version):
    rights.admin.may("POST", slices, a_slice(version, allNodes=True))
    rights.admin.may("DELETE", f"{slices}/try")
    node = rights.node(OTHER)
    node["metadata"]["labels"] = {**node["metadata"].get("labels", {}), "team": "a"}
    rights.admin.may("PUT", f"/api/v1/nodes/{OTHER}", node)
    node = with_condition(rights.node(OTHER), "Other")
    rights.admin.may("PUT", f"/api/v1/nodes/{OTHER}/status", node)
    rights.user("uninstall", node=OWN).may("DELETE", f"{slices}/theirs")


def test_the_plugin_writes_its_own_condition_beside_those_of_others(rights, plugin):
    rights.admin.may("PUT", f"/api/v1/nodes/{OWN}/status", with_condition(rights.node(OWN), "Other"))
    for status in ("True", "False"):
        plugin.may("PUT", f"/api/v1/nodes/{OWN}/status", with_condition(rights.node(OWN), "NvidiaGPUsOffered", status))
    node = rights.node(OWN)
    node["status"]["conditions"] = [each for each in node["status"]["conditions"] if each["type"] != "NvidiaGPUsOffered"]
    plugin.may("PUT", f"/api/v1/nodes/{OWN}/status", node)


def with_condition(node: Object, kind: str, status: str = "True") -> Object:
    """The Node with a condition set."""
    others = [each for each in node["status"].get("conditions", []) if each["type"] != kind]
    new = {"type": kind, "status": status, "reason": "Try", "message": ""}
    return {**node, "status": {**node["status"], "conditions": [*others, new]}}


STATUS: dict[str, Callable[[Object], Any]] = {
    "another condition": lambda node: node.update(with_condition(node, "Ready")),
    "capacity": lambda node: node["status"].update(capacity={"nvidia.com/gpu": "8"}),
    "allocatable": lambda node: node["status"].update(allocatable={"cpu": "8"}),
    "addresses": lambda node: node["status"].update(addresses=[{"type": "Hostname", "address": "a"}]),
    "system": lambda node: node["status"]["nodeInfo"].update(bootID="another"),
    "images": lambda node: node["status"].update(images=[{"names": ["a"], "sizeBytes": 1}]),
    "volumes": lambda node: node["status"].update(volumesInUse=["a/b"]),
    "kubelet's port": lambda node: node["status"].update(daemonEndpoints={"kubeletEndpoint": {"Port": 6666}}),
    "label": lambda node: node["metadata"].update(labels={"team": "a"}),
}
METADATA: dict[str, Callable[[Object], Any]] = {
    "annotation": lambda node: node["metadata"]["annotations"].update(a="b"),
    "finalizer": lambda node: node["metadata"].update(finalizers=["example.com/a"]),
    "owner": lambda node: node["metadata"].update(ownerReferences=[{"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": "b"}]),
}
SPEC: dict[str, Callable[[Object], Any]] = {
    "another label": lambda node: node["metadata"].update(labels={"team": "b"}),
    "taint": lambda node: node["spec"].update(taints=[{"key": "a", "effect": "NoSchedule"}]),
    "unschedulable": lambda node: node["spec"].update(unschedulable=True),
}


@pytest.mark.parametrize("account", ["node", "uninstall"])
@pytest.mark.parametrize("change", STATUS | METADATA)
def test_plugin_and_uninstall_write_nothing_else_of_the_nodes_status(rights, account, change):
    node = rights.node(OWN)
    (STATUS | METADATA)[change](node)
    rights.user(account, node=OWN).may_not(
        "PUT", f"/api/v1/nodes/{OWN}/status", node, why="may change the condition NvidiaGPUsOffered only"
    )


def test_the_plugin_writes_no_status_of_another_node(rights, plugin):
    node = with_condition(rights.node(OTHER), "NvidiaGPUsOffered")
    why = f"the GPU plugin of node {OWN} may write the status of its own node only, not of {OTHER}"
    plugin.may_not("PUT", f"/api/v1/nodes/{OTHER}/status", node, why=why)


def test_the_detector_sets_changes_and_removes_its_label(rights):
    detector = rights.user("detector", node=OWN)
    for label in ({"nvidia.com/gpu.present": "true"}, {"nvidia.com/gpu.present": "false"}, {}):
        node = rights.node(OWN)
        others = {key: value for key, value in node["metadata"].get("labels", {}).items() if key != "nvidia.com/gpu.present"}
        node["metadata"]["labels"] = others | label
        detector.may("PUT", f"/api/v1/nodes/{OWN}", node)


@pytest.mark.parametrize(
    ("account", "label"),
    [("detector", "nvidia.com/gpu.present"), ("agent", "nvidia.com/mig.config.state"), ("uninstall", "nvidia.com/gpu.present and")],
)
@pytest.mark.parametrize("change", SPEC | METADATA)
def test_detector_agent_and_uninstall_change_nothing_else_of_a_node(rights, account, label, change):
    node = rights.node(OWN)
    (SPEC | METADATA)[change](node)
    why = f"may change nothing of a Node but the label {label}"
    rights.user(account, node=OWN).may_not("PUT", f"/api/v1/nodes/{OWN}", node, why=why)


def test_the_uninstall_takes_label_and_condition_from_every_node(rights):
    node = with_condition(rights.node(OTHER), "NvidiaGPUsOffered")
    rights.admin.may("PUT", f"/api/v1/nodes/{OTHER}/status", node)
    rights.lab.kubectl("label", "node", OTHER, "nvidia.com/gpu.present=true", "--overwrite")
    uninstall = rights.user("uninstall", node=OWN)
    node = rights.node(OTHER)
    del node["metadata"]["labels"]["nvidia.com/gpu.present"]
    uninstall.may("PUT", f"/api/v1/nodes/{OTHER}", node)
    node = rights.node(OTHER)
    node["status"]["conditions"] = [each for each in node["status"]["conditions"] if each["type"] != "NvidiaGPUsOffered"]
    uninstall.may("PUT", f"/api/v1/nodes/{OTHER}/status", node)


def test_detector_and_agent_label_no_other_node(rights):
    node = rights.node(OTHER)
    node["metadata"]["labels"] = {"nvidia.com/gpu.present": "true"}
    why = f"on node {OWN} may label its own node only, not {OTHER}"
    rights.user("detector", node=OWN).may_not("PUT", f"/api/v1/nodes/{OTHER}", node, why=why)
    rights.user("agent", node=OWN).may_not("PUT", f"/api/v1/nodes/{OTHER}", node, why=why)


def test_detector_and_agent_write_none_of_the_others_labels(rights):
    """The state of a MIG geometry is the agent's word, and where plugins run is the detector's."""
    for account, label in (("detector", "nvidia.com/mig.config.state"), ("agent", "nvidia.com/gpu.present")):
        node = rights.node(OWN)
        node["metadata"]["labels"] = {**node["metadata"].get("labels", {}), label: "other"}
        rights.user(account, node=OWN).may_not("PUT", f"/api/v1/nodes/{OWN}", node, why="may change nothing of a Node but")


def test_the_agent_tells_of_its_own_node_only(rights):
    agent = rights.user("agent", node=OWN)
    why = f"the agent of node {OWN} may write the GpuNode of its own node only, not {OTHER}"
    agent.may_not("POST", GPU_NODES, a_gpu_node(OTHER), why=why)
    rights.apply(a_gpu_node(OTHER), a_gpu_node(OWN))
    theirs = rights.admin.may("GET", f"{GPU_NODES}/{OTHER}")
    agent.may_not("PUT", f"{GPU_NODES}/{OTHER}/status", theirs | {"status": {"phase": "Ready"}}, why=why)
    own = agent.may("GET", f"{GPU_NODES}/{OWN}")
    agent.may("PUT", f"{GPU_NODES}/{OWN}/status", own | {"status": {"phase": "Ready"}})
    rights.lab.kubectl("delete", "gpunodes", OTHER, OWN)


def test_the_api_server_has_no_doubt_about_the_expressions(rights):
    """It checks their types in the background and tells in the policy's status."""
    found = json.loads(rights.lab.kubectl("get", "validatingadmissionpolicies", "-o", "json"))["items"]
    mine = [each for each in found if each["metadata"]["name"].startswith(rights.full)]
    assert {each["metadata"]["name"] for each in mine} == {
        f"{rights.full}-{name}" for name in ("slices", "node-status", "node-labels", "gpunodes")
    }
    assert [each["status"].get("typeChecking") for each in mine] == [{}, {}, {}, {}]
