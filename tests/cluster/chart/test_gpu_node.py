"""One object per GPU node says what is there and what is lacking; read with kubectl, seen by the agent on a real containerd."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import pytest

from hack.testbed.cluster.errors import LabError
from tests.cluster.chart.installed import GPU_NODES, warnings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cluster.chart.installed import Installed


@pytest.fixture
def cluster(chart: Installed) -> Iterator[Installed]:
    chart.chart.install(agent__enabled="true")
    yield chart
    chart.clean()
    chart.chart.install()


@contextlib.contextmanager
def no_module(cluster: Installed, node: str) -> Iterator[None]:
    """The kernel module is unloaded, and loaded again."""
    version, mock = cluster.lab.host_tree(node).nvidia_proc / "version", cluster.lab.machine(node)
    text = version.read_text()
    version.unlink()
    mock.driver_loaded(loaded=False)
    try:
        yield
    finally:
        version.write_text(text)
        mock.driver_loaded(loaded=True)


def conditions(cluster: Installed, node: str) -> dict[str, Any]:
    found = (cluster.get("gpunode", node) or {}).get("status", {}).get("conditions", ())
    return {each["type"]: each for each in found}


def test_kubectl_shows_every_gpu_node_at_a_glance_and_no_other(cluster):
    cluster.wait("what the agents see", lambda: all(conditions(cluster, node) for node in GPU_NODES))
    table = cluster.lab.kubectl("get", "gpunodes").splitlines()
    assert table[0].split() == ["NAME", "PHASE", "GPUS", "PRODUCT", "DRIVER", "KERNEL", "MIG", "WAITS", "FOR", "AGE"]
    assert {line.split()[0] for line in table[1:]} == GPU_NODES
    seen = conditions(cluster, "node-a")
    assert seen["RuntimeCdi"]["status"] == "True", seen["RuntimeCdi"]
    assert "containerd" in seen["RuntimeCdi"]["message"]
    for kind in ("KernelModule", "DriverLibraries", "UnifiedMemory", "Offered"):
        assert seen[kind]["status"] == "True", seen[kind]


def test_a_gpu_node_goes_with_its_node_and_takes_no_spec(cluster):
    cluster.wait("what the agents see", lambda: all(conditions(cluster, node) for node in GPU_NODES))
    made = cluster.get("gpunode", "node-a")
    assert made["metadata"]["ownerReferences"][0]["uid"] == cluster.get("node", "node-a")["metadata"]["uid"]
    with pytest.raises(LabError, match="a GpuNode has no spec"):
        cluster.apply({**a_gpu_node("mine"), "spec": {}})


def test_a_module_that_is_away_is_said_with_what_to_do_and_well_again(cluster):
    cluster.wait("what the agents see", lambda: all(conditions(cluster, node) for node in GPU_NODES))
    with no_module(cluster, "node-a"):
        cluster.wait("what is lacking", lambda: conditions(cluster, "node-a")["KernelModule"]["status"] == "False", within=60)
        assert cluster.get("gpunode", "node-a")["status"]["phase"] == "NotReady"
        assert conditions(cluster, "node-a")["KernelModule"]["message"] in warnings(cluster, "node-a")
    cluster.wait("all is well", lambda: conditions(cluster, "node-a")["KernelModule"]["status"] == "True", within=60)


def a_gpu_node(name: str) -> dict[str, Any]:
    return {"apiVersion": "gpudra.dev/v1alpha1", "kind": "GpuNode", "metadata": {"name": name}}
