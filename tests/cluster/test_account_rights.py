"""Each of the chart's accounts can do what its role says and nothing beside it; asked over HTTPS, on a lab that runs none of the product.

RBAC words a refusal `cannot VERB resource "RESOURCE"`. The values of the table are those that the product's documentation promises.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.cluster.rights import COMPONENTS, GPU_NODES, OWN, SLICES, a_gpu_node, a_slice, rights_lab

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cluster.rights import Rights

CORE = "/api/v1"
MINE = f"{CORE}/namespaces/gpu-dra"
CLAIM = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/theirs"
CLAIMS = "/apis/resource.k8s.io/v1/resourceclaims"
CLASSES = "/apis/resource.k8s.io/v1/deviceclasses"
DAEMONSETS = "/apis/apps/v1/namespaces/gpu-dra/daemonsets"
NODE = f"{CORE}/nodes/{OWN}"
ROLES = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"

Request = tuple[str, str, str, str]
"""Method, path, verb and resource."""

EVERYBODY: tuple[Request, ...] = (
    ("GET", f"{MINE}/secrets", "list", "secrets"),
    ("GET", f"{MINE}/secrets/a", "get", "secrets"),
    ("GET", f"{MINE}/configmaps", "list", "configmaps"),
    ("DELETE", f"{MINE}/pods/a", "delete", "pods"),
    ("POST", f"{MINE}/pods", "create", "pods"),
    ("GET", f"{CORE}/namespaces", "list", "namespaces"),
    ("PUT", CLAIM, "update", "resourceclaims"),
    ("PATCH", CLAIM, "patch", "resourceclaims"),
    ("DELETE", CLAIM, "delete", "resourceclaims"),
    ("PUT", f"{CLAIM}/status", "update", "resourceclaims/status"),
    ("PATCH", f"{CLAIM}/status", "patch", "resourceclaims/status"),
    ("PATCH", f"{SLICES}/a", "patch", "resourceslices"),
    ("DELETE", SLICES, "deletecollection", "resourceslices"),
    ("POST", CLASSES, "create", "deviceclasses"),
    ("PUT", f"{CLASSES}/gpu.nvidia.com", "update", "deviceclasses"),
    ("DELETE", f"{CLASSES}/gpu.nvidia.com", "delete", "deviceclasses"),
    ("PATCH", NODE, "patch", "nodes"),
    ("PATCH", f"{NODE}/status", "patch", "nodes/status"),
    ("DELETE", NODE, "delete", "nodes"),
    ("PUT", f"{DAEMONSETS}/gpu-dra-node", "update", "daemonsets"),
    ("PUT", f"{ROLES}/gpu-dra-node", "update", "clusterroles"),
    ("DELETE", f"{POLICIES}/gpu-dra-slices", "delete", "validatingadmissionpolicies"),
    ("POST", f"{MINE}/serviceaccounts/gpu-dra-node/token", "create", "serviceaccounts/token"),
)
NOT_GRANTED: dict[str, tuple[Request, ...]] = {
    "node": (
        ("GET", f"{MINE}/pods", "list", "pods"),
        ("GET", f"{CORE}/nodes", "list", "nodes"),
        ("PUT", NODE, "update", "nodes"),
        ("GET", f"{CORE}/namespaces/default/events", "list", "events"),
        ("POST", f"{MINE}/events", "create", "events"),
        ("POST", f"{CORE}/namespaces/kube-system/events", "create", "events"),
        ("GET", DAEMONSETS, "list", "daemonsets"),
        ("GET", f"{DAEMONSETS}/another", "get", "daemonsets"),
        ("DELETE", f"{DAEMONSETS}/gpu-dra-node", "delete", "daemonsets"),
    ),
    "detector": (
        ("GET", f"{MINE}/pods", "list", "pods"),
        ("GET", f"{CORE}/nodes", "list", "nodes"),
        ("PUT", f"{NODE}/status", "update", "nodes/status"),
        ("GET", CLAIMS, "list", "resourceclaims"),
        ("GET", SLICES, "list", "resourceslices"),
        ("POST", SLICES, "create", "resourceslices"),
        ("DELETE", f"{SLICES}/a", "delete", "resourceslices"),
        ("POST", f"{MINE}/events", "create", "events"),
    ),
    "agent": (
        ("GET", GPU_NODES, "list", "gpunodes"),
        ("PUT", f"{GPU_NODES}/{OWN}", "update", "gpunodes"),
        ("DELETE", f"{GPU_NODES}/{OWN}", "delete", "gpunodes"),
        ("GET", f"{MINE}/pods", "list", "pods"),
        ("PUT", f"{NODE}/status", "update", "nodes/status"),
        ("GET", CLAIM, "get", "resourceclaims"),
        ("POST", SLICES, "create", "resourceslices"),
        ("DELETE", f"{SLICES}/a", "delete", "resourceslices"),
        ("GET", f"{CORE}/namespaces/default/events", "list", "events"),
        ("POST", f"{MINE}/events", "create", "events"),
    ),
    "uninstall": (
        ("GET", CLAIM, "get", "resourceclaims"),
        ("POST", SLICES, "create", "resourceslices"),
        ("PUT", f"{SLICES}/a", "update", "resourceslices"),
        ("GET", "/api/v1/namespaces/kube-system/pods", "list", "pods"),
        ("GET", f"{CORE}/pods", "list", "pods"),
        ("DELETE", f"{DAEMONSETS}/another", "delete", "daemonsets"),
    ),
}
REFUSED = [(component, request) for component in COMPONENTS for request in (*EVERYBODY, *NOT_GRANTED[component])]


@pytest.fixture(scope="module")
def rights() -> Iterator[Rights]:
    with rights_lab("ctrights", "1.37") as made:
        yield made


@pytest.fixture(scope="module")
def users(rights):
    """Each account as a pod of it on `OWN` has it."""
    return {component: rights.user(component, node=OWN) for component in COMPONENTS}


@pytest.mark.parametrize(("component", "request_"), REFUSED, ids=lambda each: each if isinstance(each, str) else "-".join(each[2:]))
def test_what_is_not_granted_is_refused(users, component, request_):
    method, path, verb, resource = request_
    answer = users[component].ask(method, path, {} if method in ("PATCH", "PUT", "POST") else None)
    assert answer.code == 403, answer
    assert f'cannot {verb} resource "{resource}"' in answer.message


def test_the_plugin_may_do_all_that_its_work_needs(rights, users):
    plugin, created = users["node"], claim(rights)
    plugin.may("GET", CLAIMS)
    plugin.may("GET", created)
    plugin.may("GET", NODE)
    plugin.may("PUT", f"{NODE}/status", rights.node(OWN))
    plugin.may("GET", SLICES)
    plugin.may("GET", f"{SLICES}?watch=true&timeoutSeconds=1")
    made = plugin.may("POST", SLICES, a_slice(nodeName=OWN))
    plugin.may("GET", f"{SLICES}/try")
    plugin.may("PUT", f"{SLICES}/try", made)
    plugin.may("DELETE", f"{SLICES}/try")
    event = plugin.may("POST", f"{CORE}/namespaces/default/events", an_event())
    plugin.may("PUT", f"{CORE}/namespaces/default/events/try", event | {"count": 2})
    missing = plugin.ask("GET", f"{DAEMONSETS}/gpu-dra-node")
    assert missing.code == 404  # by which it knows that it is uninstalled


def test_the_agent_may_do_all_that_its_work_needs(rights, users):
    agent = users["agent"]
    agent.may("GET", f"{CORE}/nodes?fieldSelector=metadata.name%3D{OWN}")
    agent.may("GET", f"{CORE}/nodes?fieldSelector=metadata.name%3D{OWN}&watch=true&timeoutSeconds=1")
    node = agent.may("GET", NODE)
    node["metadata"].setdefault("labels", {})["nvidia.com/mig.config.state"] = "success"
    agent.may("PUT", NODE, node)
    agent.may("GET", CLAIMS)
    agent.may("GET", SLICES)
    gpu_node = agent.may("POST", GPU_NODES, a_gpu_node(OWN))
    agent.may("PUT", f"{GPU_NODES}/{OWN}/status", gpu_node | {"status": {"phase": "Ready"}})
    assert agent.may("GET", f"{GPU_NODES}/{OWN}")["status"] == {"phase": "Ready"}
    event = agent.may("POST", f"{CORE}/namespaces/default/events", an_event("of-the-agent"))
    agent.may("PUT", f"{CORE}/namespaces/default/events/of-the-agent", event | {"count": 2})


def test_the_detector_may_do_all_that_its_work_needs(rights, users):
    node = users["detector"].may("GET", NODE)
    users["detector"].may("PUT", NODE, node)


def test_the_uninstall_may_do_all_that_its_work_needs(rights, users):
    uninstall = users["uninstall"]
    rights.admin.may("POST", SLICES, a_slice(nodeName=OWN))
    for path in (CLAIMS, SLICES, f"{CORE}/nodes", f"{MINE}/pods"):
        uninstall.may("GET", path)
    uninstall.may("DELETE", f"{SLICES}/try")
    uninstall.may("PUT", NODE, uninstall.may("GET", NODE))
    uninstall.may("PUT", f"{NODE}/status", uninstall.may("GET", NODE))
    for name in ("gpu-dra-node", "gpu-dra-detector", "gpu-dra-agent"):
        assert uninstall.ask("DELETE", f"{DAEMONSETS}/{name}").code == 404


def claim(rights: Rights) -> str:
    """The path of somebody's claim."""
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}
    spec = {"devices": {"requests": [request]}}
    kind: dict[str, Any] = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "theirs"}}
    rights.apply(kind | {"spec": spec})
    return CLAIM


def an_event(name: str = "try") -> dict[str, Any]:
    about = {"apiVersion": "v1", "kind": "Node", "name": OWN}
    return {"metadata": {"name": name}, "involvedObject": about, "reason": "Try", "type": "Normal", "message": "a", "count": 1}
