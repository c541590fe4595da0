"""An uninstalled plugin leaves nothing; one that is only replaced leaves everything."""

import os

import pytest

from gpu_dra.core.clock import FakeClock
from gpu_dra.core.locks import LockDirectory
from gpu_dra.kube.api import DAEMON_SETS, RESOURCE_SLICES
from gpu_dra.kube.errors import Forbidden, NotFound
from gpu_dra.kube.fake import FakeKubeApi
from gpu_dra.kube.rest import Verb
from gpu_dra.node.directories import NodeDirectories
from gpu_dra.node.retire import retire
from gpu_dra.slices.marks import OURS

UID = "00000000-0000-4000-8000-000000000001"


class Node:
    def __init__(self, root):
        self.api = FakeKubeApi(clock=FakeClock())
        data, cdi = root / "plugins/gpu.nvidia.com", root / "cdi"
        self.directories = NodeDirectories(data=data, locks=data / "locks", registrar=root / "registry", cdi=cdi)
        self.locks = LockDirectory(data / "locks")
        for directory in (data / "claims", data / "locks", cdi):
            directory.mkdir(parents=True)
        (cdi / "nvidia.yaml").touch()
        self.slice("ours", labels=OURS)
        self.slice("theirs", labels={})

    def slice(self, name, *, labels):
        pool = {"name": "node-a", "generation": 1, "resourceSliceCount": 1}
        spec = {"driver": "gpu.nvidia.com", "nodeName": "node-a", "devices": [], "pool": pool}
        metadata = {"name": name, "labels": dict(labels)}
        body = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": metadata, "spec": spec}
        self.api.store.create(RESOURCE_SLICES, body)

    def daemonset(self):
        body = {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "node"}}
        self.api.store.create(DAEMON_SETS, body, namespace="gpu-dra")

    @property
    def slices(self):
        return [slice_["metadata"]["name"] for slice_ in self.api.store.list(RESOURCE_SLICES)]

    async def stop(self, daemonset="gpu-dra/node"):
        await retire(
            self.api,
            daemonset=daemonset,
            driver="gpu.nvidia.com",
            node_name="node-a",
            directories=self.directories,
            locks=self.locks,
            own=self.directories.registrar / "gpu.nvidia.com-own-reg.sock",
        )


@pytest.fixture
def node(tmp_path):
    return Node(tmp_path)


async def test_without_its_daemonset_the_plugin_takes_away_its_slices_and_files_alone(node):
    await node.stop()
    assert node.slices == ["theirs"]
    assert not node.directories.data.exists()
    assert (node.directories.cdi / "nvidia.yaml").exists()


@pytest.mark.parametrize("daemonset", ["gpu-dra/node", ""])
async def test_an_update_or_a_plugin_that_belongs_to_none_leaves_everything(node, daemonset):
    node.daemonset()
    await node.stop(daemonset)
    assert node.slices == ["ours", "theirs"]
    assert node.directories.data.exists()


@pytest.mark.parametrize("kind", ["record", "cdi file"])
async def test_a_prepared_claim_keeps_files_and_slices(node, kind):
    path = node.directories.data / f"claims/{UID}.json"
    if kind == "cdi file":
        path = node.directories.cdi / f"k8s.gpu.nvidia.com-claim_{UID}.yaml"
    path.touch()
    await node.stop()
    assert node.slices == ["ours", "theirs"]
    assert path.exists()


async def test_without_the_right_to_ask_nothing_is_called_an_uninstall(node, caplog):
    node.api.fail(Forbidden("missing right: get daemonsets.apps"))
    await node.stop()
    assert node.slices == ["ours", "theirs"]
    assert [record.message for record in caplog.records] == ["cannot tell whether this is an uninstall, so slices and files stay"]


async def test_while_the_api_is_away_nothing_can_be_told_so_everything_stays(node):
    with node.api.outage():
        await node.stop()
    assert node.slices == ["ours", "theirs"]
    assert node.directories.data.exists()


async def test_files_of_nvidias_driver_in_the_directory_of_that_name_stay(node):
    checkpoint = node.directories.data / "checkpoint.json"
    checkpoint.write_text("{}")
    await node.stop()
    assert [path.name for path in node.directories.data.iterdir()] == ["checkpoint.json"]


@pytest.mark.parametrize("lock", ["gpu.nvidia.com-other-reg.sock", "publisher"])
async def test_beside_another_plugin_of_ours_all_stays(node, lock):
    """An upgrade that changes the release's name makes a second DaemonSet and removes the first."""
    held = node.locks.try_hold(lock)
    await node.stop()
    assert node.slices == ["ours", "theirs"]
    assert (node.directories.data / "claims").exists()
    os.close(held)


async def test_a_slice_that_somebody_else_deleted_meanwhile_stops_nothing(node):
    node.api.fail(NotFound("gone"), verb=Verb.DELETE)
    await node.stop()
    assert not node.directories.data.exists()
