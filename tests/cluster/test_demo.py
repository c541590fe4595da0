"""What the README promises: each sample pod sees exactly the devices of its claim."""

from __future__ import annotations

import pytest

from tests.cluster.cluster import DEMO

PODS = [
    ("one-gpu", 1),
    ("two-gpus", 2),
    ("shared-by-containers", 1),
    ("by-product", 1),
    ("by-memory", 1),
    ("same-pcie-root", 2),
    ("one-mig", 1),
]


@pytest.mark.parametrize(("sample", "devices"), PODS)
def test_a_sample_pod_sees_exactly_its_claim(cluster, sample, devices):
    pod = cluster.demo(sample)
    cluster.sees_exactly_its_claim(pod)
    assert len(cluster.allocated(pod)) == devices


@pytest.mark.parametrize(("sample", "devices"), PODS)
def test_a_sample_pod_sees_exactly_its_claim_on_the_oldest_version(old_cluster, sample, devices):
    pod = old_cluster.demo(sample)
    old_cluster.sees_exactly_its_claim(pod)
    assert len(old_cluster.allocated(pod)) == devices


def test_two_pods_share_the_gpu_of_one_claim(cluster):
    cluster.lab.kubectl("apply", "-f", str(DEMO / "shared-by-pods.yaml"))
    for pod in ("shared-by-pods-a", "shared-by-pods-b"):
        cluster.sees_exactly_its_claim(pod)
    assert cluster.allocated("shared-by-pods-a") == cluster.allocated("shared-by-pods-b")


def test_gpus_below_one_pcie_root_come_from_the_node_that_has_them(cluster):
    pod = cluster.demo("same-pcie-root")
    assert cluster.running(pod)["spec"]["nodeName"] == "node-b"


def test_a_model_that_is_not_there_keeps_the_pod_pending(cluster):
    pod = cluster.demo("no-such-model")

    def unschedulable():
        conditions = (cluster.get("pod", pod) or {}).get("status", {}).get("conditions", [])
        return any(c["type"] == "PodScheduled" and c.get("reason") == "Unschedulable" for c in conditions)

    cluster.wait("the scheduler's verdict", unschedulable)
    assert cluster.get("pod", pod)["status"]["phase"] == "Pending"


def test_a_container_runtime_runs_the_hooks_of_a_node_that_has_nvidia_cdi_hook(cluster):
    """The file names hooks there instead of the hook-less mounts, and the real containerd must take it."""
    pod = cluster.demo("one-gpu", node="node-c")
    cluster.sees_exactly_its_claim(pod)
    (_, (spec,)) = cluster.held("node-c")
    assert "createContainer" in cluster.lab.node_exec("node-c", "cat", f"/var/run/cdi/{spec}").stdout


def test_a_pod_without_a_claim_sees_no_gpu_whatever_its_environment_asks(cluster):
    cluster.apply(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "greedy"},
            "spec": {
                "terminationGracePeriodSeconds": 1,
                "nodeSelector": {"kubernetes.io/hostname": "node-a"},
                "containers": [
                    {
                        "name": "ctr",
                        "image": "gpudra.dev/sample:1",
                        "imagePullPolicy": "Never",
                        "command": ["sleep", "infinity"],
                        "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}],
                    }
                ],
            },
        }
    )
    cluster.running("greedy")
    assert "nvidia" not in cluster.lab.kubectl("exec", "greedy", "--", "ls", "/dev")


def test_after_the_last_pod_nothing_is_left_on_the_node(cluster):
    pod = cluster.demo("two-gpus", node="node-a")
    cluster.running(pod)
    assert all(len(files) == 1 for files in cluster.held("node-a"))
    cluster.delete(pod)
    cluster.gone(pod)
    cluster.wait("an empty node", lambda: cluster.held("node-a") == ([], []))
