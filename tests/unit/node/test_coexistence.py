"""No GPU is offered twice: not beside the device plugin, not beside another driver of our name."""

import asyncio
import os

import grpc
import pytest

from gpu_dra.core.clock import FakeClock
from gpu_dra.core.locks import LockDirectory
from gpu_dra.kube.api import NODES
from gpu_dra.kube.errors import Forbidden
from gpu_dra.kube.fake import FakeKubeApi
from gpu_dra.node import handlers
from gpu_dra.node.coexistence import CLEAR_LOOKS, Coexistence, advertised
from gpu_dra.node.generated.kubelet import registration_v1_pb2
from gpu_dra.node.registration import RegistrationService
from gpu_dra.node.servers import serving


@pytest.fixture
def api():
    return FakeKubeApi(clock=FakeClock())


@pytest.fixture
def node(api):
    """Sets the Node's capacity."""
    created = api.store.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-a"}})

    def capacity(**resources):
        current = api.store.get(NODES, created["metadata"]["name"])
        api.store.update_status(NODES, {**current, "status": {"capacity": resources}})

    capacity(cpu="8")
    return capacity


def coexistence(api, directory, **settings):
    given = {"driver": "gpu.nvidia.com", "node_name": "node-a", "beside_device_plugin": False, "clock": FakeClock()}
    return Coexistence(api, registrar=directory, locks=LockDirectory(directory / "locks"), **{**given, **settings})


async def looks(looked, times=CLEAR_LOOKS):
    """What is said after so many looks."""
    return [await looked.look() for _ in range(times)][-1]


async def test_a_node_without_others_is_ours(api, node, tmp_path):
    looked = coexistence(api, tmp_path)
    assert await looked.look() == ""
    assert looked.known


@pytest.mark.parametrize("resource", ["nvidia.com/gpu", "nvidia.com/gpu.shared", "nvidia.com/mig-1g.5gb"])
async def test_where_the_device_plugin_advertises_nothing_is_ours(api, node, tmp_path, resource):
    node(**{"cpu": "8", resource: "4"})
    reason = await coexistence(api, tmp_path).look()
    assert f"{resource}: 4" in reason
    assert "remove it" in reason


async def test_a_device_plugin_that_is_gone_leaves_a_zero_and_that_is_nobody(api, node, tmp_path):
    node(**{"nvidia.com/gpu": "0"})
    assert await coexistence(api, tmp_path).look() == ""


async def test_other_vendors_are_none_of_our_business(api, node, tmp_path):
    node(**{"amd.com/gpu": "4", "nvidia.com/pgpu": "1"})
    assert "pgpu" not in await coexistence(api, tmp_path).look()


async def test_the_device_plugin_may_be_allowed_to_stay(api, node, tmp_path):
    node(**{"nvidia.com/gpu": "4"})
    assert await coexistence(api, tmp_path, beside_device_plugin=True).look() == ""


async def test_when_the_device_plugin_goes_the_gpus_are_ours_again(api, node, tmp_path):
    looked = coexistence(api, tmp_path)
    node(**{"nvidia.com/gpu": "4"})
    await looked.look()
    looked.changed.clear()
    node(**{"nvidia.com/gpu": "0"})
    assert await looks(looked) == ""
    assert looked.changed.is_set()


async def test_a_capacity_that_is_zero_for_a_moment_changes_nothing(api, node, tmp_path):
    """The kubelet zeroes it at each of its starts, until the device plugin has registered again."""
    looked = coexistence(api, tmp_path)
    node(**{"nvidia.com/gpu": "4"})
    reason = await looked.look()
    node(**{"nvidia.com/gpu": "0"})
    assert [await looked.look() for _ in range(CLEAR_LOOKS - 1)] == [reason] * (CLEAR_LOOKS - 1)
    node(**{"nvidia.com/gpu": "4"})
    await looked.look()
    node(**{"nvidia.com/gpu": "0"})
    assert await looked.look() == reason, "the count begins anew"


async def test_without_an_answer_of_the_api_nothing_is_known_and_later_nothing_changes(api, node, tmp_path):
    looked = coexistence(api, tmp_path)
    with api.outage():
        await looked.look()
        assert not looked.known
    node(**{"nvidia.com/gpu": "4"})
    reason = await looked.look()
    with api.outage():
        assert await looked.look() == reason


@pytest.fixture
def short(tmp_path_factory):
    """A directory whose sockets fit the kernel."""
    return tmp_path_factory.mktemp("r")


async def test_another_driver_of_our_name_that_answers_keeps_us_out(api, node, short):
    other = RegistrationService(driver="gpu.nvidia.com", endpoint=short / "dra.sock", versions=(), on_registered=lambda: None)
    looked = coexistence(api, short)
    async with serving(short / "gpu.nvidia.com-reg.sock", other.handlers(), grace=0):
        assert "another DRA driver serves this node" in await looked.look()
    assert await looks(looked) == ""


async def test_another_driver_that_is_slow_to_answer_is_not_taken_for_gone(api, node, short, monkeypatch):
    monkeypatch.setattr("gpu_dra.node.coexistence._ANSWER_SECONDS", 0.05)

    async def slow(_request, _context):
        await asyncio.sleep(5)

    handler = handlers.service(
        "pluginregistration.Registration", {"GetInfo": handlers.unary(slow, registration_v1_pb2.InfoRequest)}
    )
    looked = coexistence(api, short)
    async with serving(short / "gpu.nvidia.com-reg.sock", [handler], grace=0):
        assert "does not answer" in await looked.peer()
        await looked.look()
        assert not looked.known, "nothing is offered in doubt"


async def test_a_socket_that_a_dead_driver_left_keeps_nobody_out(api, node, short):
    server = grpc.aio.server()
    server.add_insecure_port(f"unix:{short}/x.sock")
    await server.start()
    (short / "x.sock").rename(short / "gpu.nvidia.com-reg.sock")
    await server.stop(0)
    assert await coexistence(api, short).look() == ""


async def test_a_process_of_ours_without_a_pod_uid_is_no_other_driver(api, node, short):
    own = short / "gpu.nvidia.com-reg.sock"
    service = RegistrationService(driver="gpu.nvidia.com", endpoint=own, versions=(), on_registered=lambda: None)
    async with serving(own, service.handlers(), grace=0):
        lock = LockDirectory(short / "locks").try_hold(own.name)
        assert await coexistence(api, short).look() == ""
        os.close(lock)


async def test_while_it_cannot_be_known_the_reason_is_an_obstacle_and_told_once(api, node, tmp_path, caplog):
    looked = coexistence(api, tmp_path)
    assert looked.obstacle == ""
    api.fail(Forbidden("get nodes node-a: missing right: get nodes"), times=2)
    await looked.look()
    await looked.look()
    assert "missing right: get nodes" in looked.obstacle
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    await looked.look()
    assert looked.obstacle == ""


async def test_once_it_is_known_a_look_that_fails_is_no_obstacle(api, node, tmp_path):
    looked = coexistence(api, tmp_path)
    await looked.look()
    with api.outage():
        await looked.look()
    assert looked.obstacle == ""


def test_a_node_that_reports_no_status_yet_advertises_nothing():
    assert advertised({"metadata": {"name": "node-a"}}) == {}
