"""An uninstall strands no pod and leaves nothing in the API."""

import asyncio

import pytest

from gpu_dra.core.clock import SystemClock
from gpu_dra.core.errors import Conflict, NotReady
from gpu_dra.kube.api import DAEMON_SETS, NODES, PODS, RESOURCE_CLAIMS, RESOURCE_SLICES
from gpu_dra.kube.fake import FakeKubeApi
from gpu_dra.lifecycle import uninstall as module
from gpu_dra.lifecycle.label import GPU_PRESENT
from gpu_dra.lifecycle.uninstall import Uninstall, holder
from gpu_dra.slices.marks import NODE_CONDITION, OURS


class Cluster:
    def __init__(self):
        self.api = FakeKubeApi(clock=SystemClock())
        self.steps = Uninstall(self.api, namespace="gpu-dra", clock=SystemClock())

    def claim(self, name="train", *, driver="gpu.nvidia.com", users=("pod-a",)):
        results = [{"request": "gpu", "driver": driver, "pool": "node-a", "device": "gpu-0"}]
        body = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": name}, "spec": {}}
        created = self.api.store.create(RESOURCE_CLAIMS, body, namespace="team")
        reserved = [{"resource": "pods", "name": user, "uid": user} for user in users]
        status = {"allocation": {"devices": {"results": results}}, "reservedFor": reserved}
        self.api.store.update_status(RESOURCE_CLAIMS, {**created, "status": status}, namespace="team")

    def node(self, *, ready):
        node = self.api.store.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-a"}})
        condition = {"type": "Ready", "status": "True" if ready else "Unknown"}
        self.api.store.update_status(NODES, {**node, "status": {"conditions": [condition]}})

    def pod(self, component="node"):
        labels = {"app.kubernetes.io/instance": "gpu", "app.kubernetes.io/component": component}
        metadata = {"name": f"gpu-dra-{component}-x", "labels": labels}
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"nodeName": "node-a"}}
        self.api.store.create(PODS, body, namespace="gpu-dra")


@pytest.fixture
def cluster(monkeypatch):
    monkeypatch.setattr(module, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(module, "PLUGINS_SECONDS", 0.05)
    return Cluster()


async def test_whoever_holds_a_gpu_is_named_and_nothing_is_removed(cluster):
    cluster.claim()
    with pytest.raises(Conflict, match=r"team/train: pod-a on node node-a\n.*nothing was removed"):
        await cluster.steps.wait_for_holders(seconds=0.02)


async def test_it_goes_on_once_the_last_holder_is_gone(cluster):
    cluster.claim()
    waiting = asyncio.create_task(cluster.steps.wait_for_holders(seconds=30))
    await asyncio.sleep(0.03)
    cluster.api.store.delete(RESOURCE_CLAIMS, "train", namespace="team")
    await waiting


@pytest.mark.parametrize("facts", [{"driver": "nic.example.com"}, {"users": ()}])
async def test_claims_of_others_and_claims_nobody_uses_hold_nothing_up(cluster, facts):
    cluster.claim(**facts)
    await cluster.steps.wait_for_holders(seconds=0)


def test_a_claim_that_is_not_allocated_holds_nothing_up():
    assert holder({"metadata": {"namespace": "team", "name": "train"}}) == ""


async def test_a_long_list_of_holders_is_cut_with_its_count(cluster):
    for number in range(module.MOST_NAMED + 3):
        cluster.claim(f"train-{number}")
    with pytest.raises(Conflict, match="and 3 more"):
        await cluster.steps.wait_for_holders(seconds=0)


async def test_the_plugins_end_before_it_goes_on(cluster):
    body = {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "gpu-dra-node"}}
    cluster.api.store.create(DAEMON_SETS, body, namespace="gpu-dra")
    assert await cluster.steps.end_plugins(["gpu-dra-detector", "gpu-dra-node"], instance="gpu") == []
    assert not cluster.api.store.list(DAEMON_SETS)


async def test_a_node_that_is_down_is_named_and_holds_nobody_up(cluster):
    cluster.node(ready=False)
    cluster.pod()
    assert await cluster.steps.end_plugins(["gpu-dra-node"], instance="gpu") == ["node-a"]


async def test_a_pod_that_got_a_gpu_while_the_plugins_ended_is_told_with_the_way_out(cluster):
    cluster.claim()
    with pytest.raises(Conflict, match=r"team/train: pod-a on node node-a\n.*helm rollback"):
        await cluster.steps.refuse_latecomers()


async def test_a_pod_that_does_not_end_is_named_with_its_node(cluster):
    cluster.node(ready=True)
    cluster.pod()
    with pytest.raises(NotReady, match="gpu-dra-node-x on node-a"):
        await cluster.steps.end_plugins(["gpu-dra-node"], instance="gpu")


async def test_slices_of_dead_nodes_are_swept_and_those_of_other_drivers_stay(cluster):
    for name, labels in (("ours", OURS), ("theirs", {})):
        spec = {
            "driver": "gpu.nvidia.com",
            "nodeName": "node-b",
            "pool": {"name": "node-b", "generation": 1, "resourceSliceCount": 1},
        }
        metadata = {"name": name, "labels": dict(labels)}
        body = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": metadata, "spec": spec}
        cluster.api.store.create(RESOURCE_SLICES, body)
    assert await cluster.steps.sweep() == ["node-b"]
    assert [slice_["metadata"]["name"] for slice_ in cluster.api.store.list(RESOURCE_SLICES)] == ["theirs"]


async def test_label_and_condition_leave_every_node_and_nothing_else_does(cluster):
    metadata = {"name": "node-a", "labels": {GPU_PRESENT: "true", "a": "b"}}
    node = cluster.api.store.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": metadata})
    conditions = [{"type": "Ready", "status": "True"}, {"type": NODE_CONDITION, "status": "True"}]
    cluster.api.store.update_status(NODES, {**node, "status": {"conditions": conditions}})
    await cluster.steps.clear_nodes(["nvidia.com/gpu.present"])
    after = cluster.api.store.get(NODES, "node-a")
    assert after["metadata"]["labels"] == {"a": "b"}
    assert after["status"]["conditions"] == [{"type": "Ready", "status": "True"}]
    calls = len(cluster.api.calls)
    await cluster.steps.clear_nodes(["nvidia.com/gpu.present"])
    assert len(cluster.api.calls) == calls + 1, "a node without our traces costs no question of its own"


async def test_a_label_that_somebody_else_set_stays(cluster):
    """Without our detector it is the GPU operator's, or a person's."""
    metadata = {"name": "node-a", "labels": {GPU_PRESENT: "true"}}
    cluster.api.store.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": metadata})
    await cluster.steps.clear_nodes([])
    assert cluster.api.store.get(NODES, "node-a")["metadata"]["labels"] == {GPU_PRESENT: "true"}
