"""Each service account may do its work and no more: asked with the real tokens of the running pods.

The names and messages are those of the API server: RBAC says "cannot VERB resource", an admission policy says what its message is.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from hack.testbed.driver import with_token
from tests.cluster.installed import CONDITION, claim, pod, warnings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.cluster.installed import Installed


@dataclass
class Account:
    """A service account, by a token as the kubelet gives it to a pod (or by one that no pod has)."""

    cluster: Installed
    kubeconfig: Path

    def run(self, *arguments: str, stdin: Any = None) -> str:
        """What the API server answers, well or not."""
        text = None if stdin is None else json.dumps(stdin)
        command = [self.cluster.lab.toolbox["kubectl"], "--kubeconfig", str(self.kubeconfig), *arguments]
        done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
        return ("" if done.returncode == 0 else "refused: ") + done.stdout + done.stderr

    def may(self, *arguments: str, stdin: Any = None) -> None:
        answer = self.run(*arguments, stdin=stdin)
        assert not answer.startswith("refused"), answer

    def may_not(self, *arguments: str, stdin: Any = None, why: str = "cannot") -> None:
        answer = self.run(*arguments, stdin=stdin)
        assert answer.startswith("refused"), answer
        assert why in answer


@pytest.fixture
def account(chart, tmp_path):
    """The account of a component as its pod on a node has it; `node=""`: a token that belongs to no pod."""

    def made(component: str, node: str) -> Account:
        bound = []
        if node:
            (found,) = [each for each in chart.chart.pods(component, node=node) if "deletionTimestamp" not in each["metadata"]]
            bound = ["--bound-object-kind=Pod", f"--bound-object-name={found['metadata']['name']}"]
        token = chart.lab.kubectl("-n", "gpu-dra", "create", "token", f"gpu-dra-{component}", *bound).strip()
        path = tmp_path / f"{component}-{node}.kubeconfig"
        path.write_text(with_token(chart.lab.kubectl("config", "view", "--raw", "--flatten", "-o", "json"), token))
        return Account(cluster=chart, kubeconfig=path)

    return made


def slice_(name: str, version: str = "v1", **where: Any) -> dict[str, Any]:
    pool = {"name": "try", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "try.example.com", "pool": pool, "devices": [], **where}
    return {"apiVersion": f"resource.k8s.io/{version}", "kind": "ResourceSlice", "metadata": {"name": name}, "spec": spec}


def test_the_plugin_may_write_slices_of_its_own_node_only(chart, account):
    plugin = account("node", "node-a")
    try:
        plugin.may("create", "-f", "-", stdin=slice_("try-own", nodeName="node-a"))
        plugin.may_not("create", "-f", "-", stdin=slice_("try-other", nodeName="node-b"), why="own node only, not of node node-b")
        plugin.may_not("create", "-f", "-", stdin=slice_("try-all", allNodes=True), why="not of the whole cluster")
        terms = [{"matchExpressions": [{"key": "a", "operator": "Exists"}]}]
        selector = slice_("try-some", nodeSelector={"nodeSelectorTerms": terms})
        plugin.may_not("create", "-f", "-", stdin=selector, why="not of the whole cluster")
        chart.lab.kubectl("create", "-f", "-", stdin=yaml.safe_dump(slice_("try-theirs", nodeName="node-b")))
        plugin.may_not("delete", "resourceslice", "try-theirs", why="own node only, not of node node-b")
        account("node", "node-b").may("delete", "resourceslice", "try-theirs")
        plugin.may("delete", "resourceslice", "try-own")
    finally:
        chart.lab.kubectl(
            "delete", "resourceslices", "try-own", "try-other", "try-all", "try-some", "try-theirs", "--ignore-not-found"
        )


def test_a_token_that_belongs_to_no_pod_writes_no_slice(account):
    stolen = account("node", "")
    stolen.may_not("create", "-f", "-", stdin=slice_("try-own", nodeName="node-a"), why="names no node")


def test_the_plugin_may_read_what_it_needs_and_nothing_else(account):
    plugin = account("node", "node-a")
    plugin.may("get", "resourceclaims", "-A")
    plugin.may("get", "resourceslices")
    plugin.may("get", "node", "node-a")
    for kind in ("secrets", "pods", "configmaps", "nodes", "daemonsets"):
        plugin.may_not("get", kind, "-n", "gpu-dra")
    plugin.may_not("annotate", "node", "node-a", "a=b")
    plugin.may_not("delete", "node", "node-b")
    plugin.may_not("delete", "deviceclass", "gpu.nvidia.com")


def test_nobody_of_ours_may_write_claims(chart, account):
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}
    chart.apply(claim("theirs", request))
    for component in ("node", "detector"):
        mine = account(component, "node-a")
        mine.may_not("delete", "resourceclaim", "theirs")
        patch = json.dumps({"status": {"devices": []}})
        mine.may_not("patch", "resourceclaim", "theirs", "--subresource=status", "--type=merge", "-p", patch)


def status_of(chart: Installed, node: str, change: Any) -> dict[str, Any]:
    found = chart.get("node", node) or {}
    change(found["status"])
    return found


def test_of_the_nodes_status_the_plugin_may_write_its_own_condition_alone(chart, account):
    chart.wait("the condition", lambda: chart.condition("node-a") and chart.condition("node-b"))
    plugin = account("node", "node-a")

    def put(node: str, change: Any) -> tuple[Any, Any]:
        return ("replace", "--raw", f"/api/v1/nodes/{node}/status", "-f", "-"), status_of(chart, node, change)

    def condition(kind: str) -> Any:
        return lambda status: status["conditions"].append({"type": kind, "status": "True", "reason": "Try", "message": ""})

    def mine(status: dict[str, Any]) -> None:
        next(each for each in status["conditions"] if each["type"] == CONDITION)["lastHeartbeatTime"] = "2026-01-01T00:00:00Z"

    arguments, body = put("node-a", mine)
    plugin.may(*arguments, stdin=body)
    for change in (condition("Ready2"), lambda status: status["capacity"].update({"nvidia.com/gpu": "8"})):
        arguments, body = put("node-a", change)
        plugin.may_not(*arguments, stdin=body, why="may change the condition NvidiaGPUsOffered only")
    arguments, body = put("node-b", mine)
    plugin.may_not(*arguments, stdin=body, why="its own node only, not of node-b")


def test_the_detector_may_set_its_label_on_its_own_node_alone(chart, account):
    detector = account("detector", "plain")

    def put(node: str, change: Any) -> tuple[Any, Any]:
        found = chart.get("node", node) or {}
        change(found)
        return ("replace", "--raw", f"/api/v1/nodes/{node}", "-f", "-"), found

    def label(key: str) -> Any:
        return lambda node: node["metadata"]["labels"].update({key: "false"})

    arguments, body = put("plain", label("nvidia.com/gpu.present"))
    detector.may(*arguments, stdin=body)
    chart.lab.kubectl("label", "node", "plain", "nvidia.com/gpu.present-")
    taint = {"key": "a", "effect": "NoSchedule"}
    for change in (label("team"), lambda node: node["spec"].update({"taints": [taint]})):
        arguments, body = put("plain", change)
        detector.may_not(*arguments, stdin=body, why="may change the label nvidia.com/gpu.present only")
    arguments, body = put("node-a", label("nvidia.com/gpu.present"))
    detector.may_not(*arguments, stdin=body, why="its own node only, not node-a")
    for kind in ("secrets", "pods", "resourceslices", "resourceclaims"):
        detector.may_not("get", kind, "-n", "gpu-dra")


@pytest.fixture
def without(chart):
    """A context in which a role lacks its rule for a resource."""
    roles = ("gpu-dra-node", "gpu-dra-detector")
    before = {role: json.loads(chart.lab.kubectl("get", "clusterrole", role, "-o", "json"))["rules"] for role in roles}

    def set_rules(role: str, rules: list[Any]) -> None:
        chart.lab.kubectl("patch", "clusterrole", role, "--type=merge", "-p", json.dumps({"rules": rules}))

    @contextlib.contextmanager
    def taken(role: str, resource: str) -> Iterator[None]:
        set_rules(role, [rule for rule in before[role] if resource not in rule["resources"]])
        try:
            yield
        finally:
            set_rules(role, before[role])

    return taken


def restarted(chart: Installed, component: str, node: str) -> None:
    names = [each["metadata"]["name"] for each in chart.chart.pods(component, node=node)]
    chart.lab.kubectl("-n", "gpu-dra", "delete", "pod", *names)


@pytest.mark.parametrize("resource", ["nodes", "resourceslices"])
def test_a_plugin_that_lacks_a_right_says_which_and_heals_when_it_has_it(chart, without, resource):
    with without("gpu-dra-node", resource):
        restarted(chart, "node", "node-a")
        chart.wait("a line that names it", lambda: f'resource \\"{resource}\\"' in chart.chart.logs("node", tail=60))
        assert "Traceback" not in chart.chart.logs("node", tail=200)
    chart.wait("the plugin ready", lambda: "node-a" in chart.plugins(), within=120)
    chart.wait("its slices", lambda: "node-a" in chart.offered())


def test_a_plugin_that_may_not_read_claims_says_so_where_the_pod_is_described(chart, without):
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}
    with without("gpu-dra-node", "resourceclaims"):
        chart.apply(claim("unread", request), pod("waits", {"name": "gpu", "resourceClaimName": "unread"}, node="node-a"))
        chart.wait("the event", lambda: 'cannot get resource "resourceclaims"' in warnings(chart, "waits"))


def test_a_detector_that_may_not_read_its_node_says_so(chart, without):
    with without("gpu-dra-detector", "nodes"):
        restarted(chart, "detector", "plain")
        chart.wait("a line that names it", lambda: 'resource "nodes"' in chart.chart.logs("detector", tail=60))
        assert "Traceback" not in chart.chart.logs("detector", tail=200)
