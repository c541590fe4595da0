"""A lab with the product as a person has it: the image on its nodes, the chart installed by Helm."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from hack.demo.main import NODES, partition
from hack.testbed.chart import Chart
from hack.testbed.cluster import teardown
from hack.testbed.cluster.errors import say_on_stderr
from hack.testbed.cluster.lab import Lab
from hack.testbed.cluster.spec import NodeSpec, Wishes
from tests.cluster.cluster import Cluster

if TYPE_CHECKING:
    from collections.abc import Iterator

PLAIN = NodeSpec(name="plain")
GPU_NODES = {node.name for node in NODES}
CONDITION = "NvidiaGPUsOffered"


class Installed(Cluster):
    """A lab with the chart."""

    @property
    def chart(self) -> Chart:
        return Chart(lab=self.lab)

    def condition(self, node: str) -> dict[str, Any]:
        """What the Node says of its GPUs."""
        conditions = (self.get("node", node) or {})["status"]["conditions"]
        return next((each for each in conditions if each["type"] == CONDITION), {})

    def capacity(self, node: str, resource: str, count: int) -> None:
        """What a device plugin's registration leaves in the Node's status."""
        patch = json.dumps({"status": {"capacity": {resource: str(count)}}})
        self.lab.kubectl("patch", "node", node, "--subresource=status", "--type=merge", "-p", patch)

    def offered(self) -> set[str]:
        """Nodes with slices that have devices."""
        return {slice_["spec"]["nodeName"] for slice_ in self.slices() if slice_["spec"].get("devices")}

    def plugins(self) -> dict[str, str]:
        """Node and name of each plugin pod that is ready."""
        pods = self.chart.pods("node")
        return {pod["spec"]["nodeName"]: pod["metadata"]["name"] for pod in pods if _is_ready(pod)}

    def clean(self) -> None:
        """Pods first: a claim that a plain pod's limits made belongs to its pod, and 1.34 does not let go of one that is torn away."""
        self.lab.kubectl("delete", "pods", "--all", "--wait=false", "--grace-period=1")
        self.wait("no pods", lambda: not self.items("pods"), within=90)
        super().clean()

    def evidence(self) -> str:
        pods = self.lab.kubectl("get", "pods", "-A", "-o", "wide")
        events = "\n".join(self.lab.kubectl("get", "events", "-A", "--sort-by=.lastTimestamp").splitlines()[-40:])
        return f"{pods}\n\n{events}\n\n{self.chart.logs('node')}"


def _is_ready(pod: dict[str, Any]) -> bool:
    conditions = pod["status"].get("conditions", ())
    return "deletionTimestamp" not in pod["metadata"] and any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def installed(name: str, kubernetes: str, *, nodes: tuple[NodeSpec, ...], gates: str | None = None) -> Iterator[Installed]:
    teardown.down(name, say=say_on_stderr)
    try:
        lab = Lab.up(Wishes(name=name, kubernetes=kubernetes, nodes=nodes, feature_gates=gates))
        partition(lab)
        cluster = Installed(lab=lab, drivers={})
        cluster.chart.load_image(say=say_on_stderr)
        cluster.chart.install()
        cluster.wait("slices of both GPU nodes", lambda: cluster.offered() == GPU_NODES)
        yield cluster
    finally:
        teardown.down(name, say=say_on_stderr)


def pod(name: str, *claims: dict[str, Any], limits: dict[str, str] | None = None, node: str | None = None) -> dict[str, Any]:
    """A pod that runs the sample image; `claims` as in spec.resourceClaims."""
    container = {
        "name": "ctr",
        "image": "gpudra.dev/sample:1",
        "imagePullPolicy": "Never",
        "command": ["sh", "-c", "nvidia-smi -L; exec sleep infinity"],
        "resources": {"claims": [{"name": claim["name"]} for claim in claims]} if claims else {"limits": limits},
    }
    spec: dict[str, Any] = {"terminationGracePeriodSeconds": 1, "automountServiceAccountToken": False, "containers": [container]}
    if claims:
        spec["resourceClaims"] = list(claims)
    if node:
        spec["nodeSelector"] = {"kubernetes.io/hostname": node}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def claim(name: str, request: dict[str, Any]) -> dict[str, Any]:
    spec = {"devices": {"requests": [request]}}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": name}, "spec": spec}


def warnings(cluster: Installed, name: str) -> str:
    return cluster.lab.kubectl(
        "get", "events", "-A", "--field-selector", f"type=Warning,involvedObject.name={name}", "-o", "jsonpath={.items[*].message}"
    )
