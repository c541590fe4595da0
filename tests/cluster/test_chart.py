"""The product as a person has it: the image in pods, installed, upgraded and removed by Helm on a real Kubernetes.

One lab a version, with two GPU nodes and one without. The tests run in order: the last one uninstalls.
"""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING, Any

import pytest

from hack.demo import main as demo
from hack.demo.main import NODES, partition
from hack.testbed.chart import CHART, Chart
from hack.testbed.cluster import teardown
from hack.testbed.cluster.errors import LabError, say_on_stderr
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


def _installed(name: str, kubernetes: str, *, gates: str | None = None) -> Iterator[Installed]:
    teardown.down(name, say=say_on_stderr)
    try:
        lab = Lab.up(Wishes(name=name, kubernetes=kubernetes, nodes=(*NODES, PLAIN), feature_gates=gates))
        partition(lab)
        cluster = Installed(lab=lab, drivers={})
        cluster.chart.load_image(say=say_on_stderr)
        cluster.chart.install()
        cluster.wait("slices of both GPU nodes", lambda: cluster.offered() == GPU_NODES)
        yield cluster
    finally:
        teardown.down(name, say=say_on_stderr)


@pytest.fixture(scope="module")
def newest() -> Iterator[Installed]:
    yield from _installed("chart37", "1.37")


@pytest.fixture(scope="module")
def oldest() -> Iterator[Installed]:
    """1.34 has extended resources for device classes behind a gate."""
    yield from _installed("chart34", "1.34", gates="DRAExtendedResource=true")


@pytest.fixture
def cluster(newest: Installed) -> Iterator[Installed]:
    newest.clean()
    yield newest
    newest.clean()


@pytest.fixture
def old_cluster(oldest: Installed) -> Iterator[Installed]:
    oldest.clean()
    yield oldest
    oldest.clean()


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


def test_only_nodes_with_gpus_are_labelled_and_run_the_plugin(cluster):
    nodes = {node["metadata"]["name"]: node["metadata"]["labels"] for node in cluster.items("nodes")}
    assert {name for name, labels in nodes.items() if labels.get("nvidia.com/gpu.present") == "true"} == GPU_NODES
    cluster.wait("plugins ready", lambda: set(cluster.plugins()) == GPU_NODES)
    assert {pod["spec"]["nodeName"] for pod in cluster.chart.pods("detector")} == {*GPU_NODES, "plain"}


def test_the_node_says_that_its_gpus_are_offered(cluster):
    cluster.wait("conditions", lambda: all(cluster.condition(node).get("status") == "True" for node in GPU_NODES))
    assert cluster.condition("plain") == {}


def test_every_pod_of_the_demo_sees_exactly_its_claim(cluster):
    cluster.lab.kubectl("apply", "-f", str(demo.SAMPLES))
    cluster.wait("the demo's pods", lambda: all(demo.settled(pod) for pod in cluster.items("pods")), within=90)
    rows = demo.compare(cluster.lab)
    assert len(rows) == 10
    assert [(row.pod, row.verdict()) for row in rows if not row.right] == []


def test_helm_test_claims_a_gpu(cluster):
    assert "GPU-" in cluster.chart.helm("test", "gpu-dra", "--timeout", "60s")


def test_a_plain_pod_gets_a_gpu_by_the_old_resource_name(cluster):
    cluster.apply(pod("plain-limits", limits={"nvidia.com/gpu": "1"}))
    cluster.running("plain-limits")
    assert cluster.lab.kubectl("logs", "plain-limits").count("GPU-") == 1


def test_a_prioritized_list_falls_back_to_what_there_is(cluster):
    wish = [
        {"name": "best", "deviceClassName": "gpu-gb300"},
        {"name": "good", "deviceClassName": "gpu-h100", "allocationMode": "ExactCount", "count": 2},
    ]
    cluster.apply(claim("either", {"name": "gpu", "firstAvailable": wish}))
    cluster.apply(pod("falls-back", {"name": "gpu", "resourceClaimName": "either"}))
    cluster.running("falls-back")
    assert cluster.lab.kubectl("logs", "falls-back").count("H100") == 2


def test_a_monitoring_pod_sees_every_gpu_of_a_node_while_others_hold_them(cluster):
    cluster.lab.kubectl("label", "namespace", "default", "resource.kubernetes.io/admin-access=true", "--overwrite")
    holder = cluster.demo("two-gpus", node="node-a")
    cluster.running(holder)
    wish = {"deviceClassName": "gpu-monitoring", "allocationMode": "All", "adminAccess": True}
    cluster.apply(claim("all", {"name": "gpus", "exactly": wish}))
    cluster.apply(pod("monitor", {"name": "gpus", "resourceClaimName": "all"}, node="node-a"))
    cluster.running("monitor")
    assert cluster.lab.kubectl("logs", "monitor").count("GPU-") == 8
    cluster.delete("monitor")
    cluster.gone("monitor")
    cluster.sees_exactly_its_claim(holder)


@pytest.mark.parametrize("feature", ["TimeSlicing", "MPS"])
def test_a_configuration_for_what_is_not_built_is_refused_by_name_where_the_pod_is_described(cluster, feature):
    template = claim(feature.lower(), {"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}})
    sub = {"timeSlicingConfig": {"interval": "Long"}} if feature == "TimeSlicing" else {}
    parameters = {"apiVersion": "resource.nvidia.com/v1beta1", "kind": "GpuConfig", "sharing": {"strategy": feature, **sub}}
    template["spec"]["devices"]["config"] = [{"opaque": {"driver": "gpu.nvidia.com", "parameters": parameters}}]
    cluster.apply(template, pod("refused", {"name": "gpu", "resourceClaimName": feature.lower()}))
    word = "time" if feature == "TimeSlicing" else "MPS"
    cluster.wait("an event that names it", lambda: word in _warnings(cluster, "refused"))


def test_beside_the_device_plugin_nothing_is_offered_and_the_node_says_why(cluster):
    kept = cluster.demo("one-gpu", node="node-a")
    cluster.running(kept)
    cluster.capacity("node-a", "nvidia.com/gpu", 8)
    try:
        cluster.wait("the slices of node-a gone", lambda: cluster.offered() == GPU_NODES - {"node-a"})
        cluster.wait("the condition", lambda: cluster.condition("node-a").get("status") == "False")
        assert "nvidia.com/gpu: 8" in cluster.condition("node-a")["message"]
        cluster.wait("the event", lambda: "device plugin" in _warnings(cluster, "node-a"))
        assert (cluster.get("pod", kept) or {})["status"]["phase"] == "Running"
    finally:
        cluster.capacity("node-a", "nvidia.com/gpu", 0)
    cluster.wait("the slices of node-a back", lambda: cluster.offered() == GPU_NODES)
    cluster.wait("the condition", lambda: cluster.condition("node-a").get("status") == "True")


def test_a_wrong_driver_root_is_told_on_the_node_and_heals_with_the_value(cluster):
    cluster.chart.helm("upgrade", "gpu-dra", str(CHART), "--reuse-values", "--set", "node.driverRoot=/opt/nowhere")
    try:
        cluster.wait(
            "an event of a node", lambda: any("/opt/nowhere does not exist" in _warnings(cluster, node) for node in GPU_NODES)
        )
        assert cluster.offered() == GPU_NODES, "the plugins that work go on"
        assert {cluster.condition(node)["status"] for node in GPU_NODES} == {"True"}
    finally:
        cluster.chart.install()
    cluster.wait("plugins ready", lambda: set(cluster.plugins()) == GPU_NODES)


def upgraded_under_load(cluster: Installed, change: Any) -> None:
    """Run `change` while pods hold claims and others come; nothing may fail, stop, or be withdrawn."""
    holder = cluster.demo("one-gpu", node="node-a")
    cluster.running(holder)
    started = cluster.lab.kubectl("get", "pod", holder, "-o", "jsonpath={.status.containerStatuses[0].containerID}")
    slices = {slice_["metadata"]["uid"] for slice_ in cluster.slices()}
    before = cluster.plugins()
    worker = threading.Thread(target=change)
    worker.start()
    newcomers = []
    while worker.is_alive() and len(newcomers) < 6:
        newcomers.append(cluster.demo("one-gpu", pod_name=f"during-{len(newcomers)}", node="node-a"))
        cluster.running(newcomers[-1], within=20)
    worker.join()
    assert newcomers
    others = lambda: {node: name for node, name in cluster.plugins().items() if name != before[node]}  # noqa: E731
    cluster.wait("new plugins", lambda: set(others()) == GPU_NODES)
    assert {slice_["metadata"]["uid"] for slice_ in cluster.slices()} == slices
    assert cluster.lab.kubectl("get", "pod", holder, "-o", "jsonpath={.status.containerStatuses[0].containerID}") == started
    for each in (holder, *newcomers):
        cluster.sees_exactly_its_claim(each)
    assert "FailedPrepareDynamicResources" not in cluster.lab.kubectl("get", "events", "-o", "name")


def test_an_upgrade_and_the_way_back_leave_no_gap(cluster):
    cluster.chart.load_image(tag="0.0.9", say=say_on_stderr)
    upgraded_under_load(cluster, lambda: cluster.chart.install(image__tag="0.0.9"))
    cluster.clean()
    upgraded_under_load(cluster, lambda: cluster.chart.helm("rollback", "gpu-dra", "--wait", "--timeout", "90s"))


def test_an_uninstall_waits_for_holders_names_them_and_then_leaves_nothing(cluster):
    holder = cluster.demo("one-gpu", node="node-a")
    cluster.running(holder)
    cluster.chart.install(uninstall__timeoutSeconds="2")
    with pytest.raises(LabError, match=r"(?s)one-gpu on node node-a.*nothing was removed"):
        cluster.chart.uninstall()
    cluster.sees_exactly_its_claim(holder)
    cluster.clean()
    cluster.chart.uninstall()
    assert cluster.slices() == []
    for kind in ("deviceclasses", "clusterroles", "clusterrolebindings", "validatingadmissionpolicies"):
        assert "gpu" not in cluster.lab.kubectl("get", kind, "-o", "name")
    assert cluster.lab.kubectl("-n", "gpu-dra", "get", "daemonsets,jobs,pods,rolebindings,networkpolicies", "-o", "name") == ""
    for node in GPU_NODES:
        for directory in ("/var/lib/kubelet/plugins", "/var/lib/kubelet/plugins_registry", "/var/run/cdi"):
            assert cluster.node_files(node, directory) == []
        found = cluster.get("node", node) or {}
        assert "nvidia.com/gpu.present" not in found["metadata"]["labels"]
        assert cluster.condition(node) == {}


def test_on_the_oldest_version_claims_and_the_old_resource_name_work_and_all_goes_again(old_cluster):
    old_cluster.sees_exactly_its_claim(old_cluster.demo("one-gpu"))
    old_cluster.sees_exactly_its_claim(old_cluster.demo("one-mig"))
    old_cluster.apply(pod("plain-limits", limits={"nvidia.com/gpu": "1"}))
    old_cluster.running("plain-limits")
    assert old_cluster.lab.kubectl("logs", "plain-limits").count("GPU-") == 1
    old_cluster.clean()
    old_cluster.chart.uninstall()
    assert old_cluster.slices() == []


def _warnings(cluster: Installed, name: str) -> str:
    return cluster.lab.kubectl(
        "get", "events", "-A", "--field-selector", f"type=Warning,involvedObject.name={name}", "-o", "jsonpath={.items[*].message}"
    )
