"""Running pods are never touched, new pods work again, and nothing is forgotten, whatever part of the node or the cluster fails."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from hack.testbed.driver import install

NODE = "node-a"


@pytest.fixture
def holder(cluster):
    """A pod that holds a GPU on node-a."""
    pod = cluster.demo("one-gpu", node=NODE, pod_name="holder")
    cluster.running(pod)
    return pod


def restarts(cluster, pod):
    return [status["restartCount"] for status in cluster.get("pod", pod)["status"]["containerStatuses"]]


def uids(cluster):
    return {piece["metadata"]["name"]: piece["metadata"]["uid"] for piece in cluster.slices()}


def a_new_pod_works(cluster, name="newcomer", node=NODE):
    pod = cluster.demo("one-gpu", node=node, pod_name=name)
    cluster.running(pod)
    cluster.sees_exactly_its_claim(pod)


def test_a_kubelet_restart_leaves_pods_alone_and_brings_the_slices_back(cluster, holder):
    """The kubelet deletes its node's slices when it starts."""
    cluster.lab.restart_kubelet(NODE)
    cluster.wait_for_slices(within=20)
    a_new_pod_works(cluster)
    cluster.sees_exactly_its_claim(holder)
    assert restarts(cluster, holder) == [0]


def test_a_kubelet_restart_on_the_oldest_version(old_cluster):
    pod = old_cluster.demo("one-gpu", node=NODE, pod_name="holder")
    old_cluster.running(pod)
    old_cluster.lab.restart_kubelet(NODE)
    old_cluster.wait_for_slices(within=20)
    a_new_pod_works(old_cluster)
    old_cluster.sees_exactly_its_claim(pod)


@pytest.mark.parametrize("version", ["cluster", "old_cluster"])
def test_a_killed_plugin_comes_back_knowing_its_claims(request, version):
    cluster = request.getfixturevalue(version)
    pod = cluster.demo("one-gpu", node=NODE, pod_name="holder")
    cluster.running(pod)
    before = uids(cluster)
    cluster.drivers[NODE].kill()
    cluster.start_driver(NODE)
    a_new_pod_works(cluster)
    assert uids(cluster) == before
    cluster.delete(pod)
    cluster.gone(pod)


def test_a_pod_deleted_while_the_plugin_is_down_ends_when_it_is_back(cluster, holder):
    cluster.drivers[NODE].stop()
    cluster.delete(holder)
    time.sleep(3)
    assert cluster.get("pod", holder) is not None
    cluster.start_driver(NODE)
    cluster.gone(holder, within=120)
    cluster.wait("an empty node", lambda: cluster.held(NODE) == ([], []))


def test_a_rolling_update_has_no_gap_and_keeps_the_slices(cluster, holder):
    """Two plugin processes overlap; the sockets carry the pod UID."""
    old = cluster.drivers[NODE]
    before = uids(cluster)
    successor = replace(old, name="successor", pod_uid="0a1b2c3d-0000-4000-8000-000000000001")
    successor.start(http_port=8081)
    try:
        a_new_pod_works(cluster, "during")
        old.stop()
        a_new_pod_works(cluster, "after")
        cluster.delete(holder)
        cluster.gone(holder)
        assert uids(cluster) == before
    finally:
        cluster.start_driver(NODE)
        successor.stop()


def test_pods_with_claims_come_back_after_a_reboot(cluster, holder):
    """CDI files, device nodes and sockets are on tmpfs; the journal is not, and its boot id is of another boot."""
    cluster.drivers[NODE].kill()
    cluster.lab.reboot(NODE)
    cluster.start_driver(NODE)
    cluster.wait("the pod restarted", lambda: restarts(cluster, holder) != [0], within=120)
    cluster.sees_exactly_its_claim(holder)


def test_a_slice_deleted_by_hand_is_back_within_two_seconds(cluster):
    name = cluster.slice_of(NODE)["metadata"]["name"]
    cluster.lab.kubectl("delete", "resourceslice", name)
    cluster.wait("the slice back", lambda: cluster.slice_of(NODE), within=2)


def test_a_slice_edited_by_hand_is_repaired(cluster):
    name = cluster.slice_of(NODE)["metadata"]["name"]
    devices = cluster.slice_of(NODE)["spec"]["devices"]
    patch = '[{"op": "remove", "path": "/spec/devices/0"}]'
    cluster.lab.kubectl("patch", "resourceslice", name, "--type=json", "-p", patch)
    cluster.wait("all devices back", lambda: (cluster.slice_of(NODE) or {"spec": {}})["spec"].get("devices") == devices, within=10)


def test_a_force_deleted_pod_frees_its_gpu(cluster, holder):
    cluster.delete(holder, "--grace-period=0", "--force")
    cluster.wait("an empty node", lambda: cluster.held(NODE) == ([], []), within=120)


def test_a_claim_torn_out_of_the_api_does_not_stop_its_pod_and_is_forgotten_with_it(cluster, holder):
    """Finalizers removed by force: the scheduler may give the GPU away, and the node must not lose track."""
    (claim,) = [c["metadata"]["name"] for c in cluster.items("resourceclaims")]
    cluster.lab.kubectl("patch", "resourceclaim", claim, "--type=merge", "-p", '{"metadata":{"finalizers":null}}')
    cluster.lab.kubectl("delete", "resourceclaim", claim, "--wait=false")
    assert restarts(cluster, holder) == [0]
    cluster.delete(holder)
    cluster.gone(holder, within=120)
    cluster.wait("an empty node", lambda: cluster.held(NODE) == ([], []), within=60)


def test_an_api_server_that_is_away_for_a_minute_is_ridden_out(cluster, holder):
    before = uids(cluster)
    cluster.lab.stop_apiserver()
    time.sleep(60)
    cluster.lab.start_apiserver()
    a_new_pod_works(cluster)  # the scheduler's own watches back off for a minute
    cluster.sees_exactly_its_claim(holder)
    assert restarts(cluster, holder) == [0]
    assert uids(cluster) == before


def test_twenty_pods_in_a_burst_all_get_their_gpu(cluster):
    """Sixteen whole GPUs and more on three nodes; those that wait get theirs when an earlier one goes."""
    names = [f"burst-{number}" for number in range(20)]
    for name in names:
        cluster.demo("one-gpu", pod_name=name)
    for number, name in enumerate(names):
        cluster.running(name)
        if number < 10:
            cluster.delete(name)
    cluster.wait("the last ten", lambda: len(cluster.items("pods")) == 10)
    for name in names[10:]:
        cluster.sees_exactly_its_claim(name)


def test_a_partition_made_by_hand_can_be_claimed_at_once(cluster):
    mock = cluster.lab.machine("node-b")
    mock.mig_mode(6, enabled=True)
    mock.partition(6, 5, start=0)
    try:

        def names():
            piece = cluster.slice_of("node-b")
            return {device["name"] for device in piece["spec"]["devices"]} if piece else set()

        cluster.wait("the partition published", lambda: "gpu-6-mig-4g20gb-5-0" in names(), within=10)
        assert "gpu-6" not in names()
    finally:
        for instance in mock.show()["gpus"][6]["gpu_instances"]:
            mock.unpartition(6, instance["id"])
        mock.mig_mode(6, enabled=False)
        cluster.wait("the whole GPU back", lambda: "gpu-6" in names(), within=20)


def test_a_lost_gpu_is_tainted_and_comes_back_when_it_is_well(cluster):
    mock = cluster.lab.machine(NODE)

    def taints():
        return {
            device["name"]: [taint["key"] for taint in device.get("taints", ())]
            for device in (cluster.slice_of(NODE) or {"spec": {}})["spec"].get("devices", ())
        }

    mock.lose(5)
    try:
        cluster.wait("the taint", lambda: taints().get("gpu-5") == ["gpu.nvidia.com/unhealthy"], within=10)
        assert [name for name, keys in taints().items() if keys] == ["gpu-5"]
    finally:
        mock.restore(5)
    cluster.wait("the taint gone", lambda: taints().get("gpu-5") == [], within=40)


def test_a_device_node_that_vanished_is_made_again(cluster):
    cluster.lab.node_exec("node-c", "sh", "-c", "rm /dev/nvidia[0-9]*")
    a_new_pod_works(cluster, node="node-c")


def test_a_driver_without_rights_says_which_one_is_missing(cluster):
    driver = cluster.drivers["node-c"]
    try:
        cluster.lab.kubectl("patch", "clusterrole", "gpu-dra-node", "--type=json", "-p", '[{"op": "remove", "path": "/rules/1"}]')
        before = len(driver.log.read_text())
        driver.kill()
        driver.start()
        cluster.wait("the missing right", lambda: "resourceslices.resource.k8s.io" in driver.log.read_text()[before:], within=20)
        assert driver.process is not None
        assert "Traceback" not in driver.log.read_text()[before:]
    finally:
        install(cluster.lab)
    cluster.wait_for_slices(["node-c"], within=60)
