"""The product as a person has it: the image in pods, installed and upgraded by Helm on a real Kubernetes."""

from __future__ import annotations

import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from hack.demo import main as demo
from hack.testbed.chart import CHART
from hack.testbed.cluster.errors import LabError, say_on_stderr
from tests.cluster.chart.installed import GPU_NODES, claim, pod, warnings
from tests.cluster.cluster import RETRY
from tests.helm.test_render import CHOICES

if TYPE_CHECKING:
    from tests.cluster.chart.installed import Installed


@pytest.fixture
def cluster(chart: Installed) -> Installed:
    return chart


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
    cluster.wait("the demo's pods", lambda: all(demo.settled(pod) for pod in cluster.items("pods")), within=RETRY)
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
    cluster.wait("an event that names it", lambda: word in warnings(cluster, "refused"))


def test_beside_the_device_plugin_nothing_is_offered_and_the_node_says_why(cluster):
    kept = cluster.demo("one-gpu", node="node-a")
    cluster.running(kept)
    cluster.capacity("node-a", "nvidia.com/gpu", 8)
    try:
        cluster.wait("the slices of node-a gone", lambda: cluster.offered() == GPU_NODES - {"node-a"})
        cluster.wait("the condition", lambda: cluster.condition("node-a").get("status") == "False")
        assert "nvidia.com/gpu: 8" in cluster.condition("node-a")["message"]
        cluster.wait("the event", lambda: "device plugin" in warnings(cluster, "node-a"))
        assert (cluster.get("pod", kept) or {})["status"]["phase"] == "Running"
    finally:
        cluster.capacity("node-a", "nvidia.com/gpu", 0)
    cluster.wait("the slices of node-a back", lambda: cluster.offered() == GPU_NODES)
    cluster.wait("the condition", lambda: cluster.condition("node-a").get("status") == "True")


def test_beside_another_driver_of_our_name_nothing_is_offered_until_it_is_gone(cluster):
    lab = cluster.lab
    lab.start_in_node("node-a", "peer", (sys.executable, str(Path(__file__).with_name("peer.py"))), log=lab.folder.log("peer"))
    try:
        cluster.wait("the slices of node-a gone", lambda: cluster.offered() == GPU_NODES - {"node-a"})
        cluster.wait("the condition", lambda: "another DRA driver" in cluster.condition("node-a").get("message", ""))
    finally:
        lab.stop_in_node("node-a", "peer", number=signal.SIGKILL)
    cluster.wait("the slices of node-a back", lambda: cluster.offered() == GPU_NODES)
    cluster.lab.node_exec("node-a", "rm", "-f", "/var/lib/kubelet/plugins_registry/gpu.nvidia.com-reg.sock")
    cluster.sees_exactly_its_claim(cluster.demo("one-gpu", node="node-a"))


@pytest.mark.parametrize("choice", CHOICES.values(), ids=CHOICES)
def test_the_api_server_takes_what_every_choice_renders(cluster, choice):
    known = [word for api in ("resource.k8s.io/v1",) for word in ("--api-versions", api)]
    rendered = cluster.chart.helm("template", "other", str(CHART), "--no-hooks", *known, *choice)
    cluster.lab.kubectl("apply", "--dry-run=server", "-f", "-", stdin=rendered)


def test_a_wrong_driver_root_is_told_on_the_node_and_heals_with_the_value(cluster):
    cluster.chart.helm("upgrade", "gpu-dra", str(CHART), "--reuse-values", "--set", "node.driverRoot=/opt/nowhere")
    try:
        cluster.wait(
            "an event of a node", lambda: any("/opt/nowhere does not exist" in warnings(cluster, node) for node in GPU_NODES)
        )
        assert cluster.offered() == GPU_NODES, "the plugins that work go on"
        assert {cluster.condition(node)["status"] for node in GPU_NODES} == {"True"}
        for node in sorted(GPU_NODES):
            cluster.sees_exactly_its_claim(cluster.demo("one-gpu", pod_name=f"while-{node}", node=node))
    finally:
        cluster.chart.install()
    cluster.wait("plugins ready", lambda: set(cluster.plugins()) == GPU_NODES)


def test_a_second_release_is_refused_with_the_command_that_helps(cluster):
    with pytest.raises(
        LabError, match=r"installed already, as release gpu-dra in namespace gpu-dra.*helm upgrade gpu-dra -n gpu-dra"
    ):
        cluster.chart.helm("install", "second", str(CHART))


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
        cluster.running(newcomers[-1])
    worker.join()
    assert newcomers
    others = lambda: {node: name for node, name in cluster.plugins().items() if name != before[node]}  # noqa: E731
    cluster.wait("new plugins", lambda: set(others()) == GPU_NODES)
    assert {slice_["metadata"]["uid"] for slice_ in cluster.slices()} == slices
    assert cluster.lab.kubectl("get", "pod", holder, "-o", "jsonpath={.status.containerStatuses[0].containerID}") == started
    for each in (holder, *newcomers):
        cluster.sees_exactly_its_claim(each)
    assert [text for each in (holder, *newcomers) if "NodePrepareResources" in (text := warnings(cluster, each))] == []


def test_an_upgrade_and_the_way_back_leave_no_gap(cluster):
    cluster.chart.load_image(tag="0.0.9", say=say_on_stderr)
    upgraded_under_load(cluster, lambda: cluster.chart.install(image__tag="0.0.9"))
    cluster.clean()
    upgraded_under_load(cluster, lambda: cluster.chart.helm("rollback", "gpu-dra", "--wait", "--timeout", "90s"))
