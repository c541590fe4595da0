"""A plugin takes no calls away from one that serves them better."""

import asyncio
import os
import tempfile
from pathlib import Path

import pytest

from gpu_dra.core.clock import SystemClock
from gpu_dra.core.errors import Broken
from gpu_dra.core.locks import LockDirectory
from gpu_dra.model.inventory import DriverState, Inventory
from gpu_dra.node import registering
from gpu_dra.node.registering import Registering
from gpu_dra.node.registration import RegistrationService

READY = Inventory(state=DriverState.READY)
BROKEN = Inventory(state=DriverState.LIBRARY_NOT_FOUND, reason="the driver root /opt/nowhere does not exist")


class Node:
    """A plugin about to register, another one that may serve, and another driver that may be there."""

    def __init__(self, root):
        self.locks = LockDirectory(root / "locks")
        self.path = root / "gpu.nvidia.com-new-reg.sock"
        self.current, self.age = READY, 0.0
        self.other = ""
        self.registration = RegistrationService(
            driver="gpu.nvidia.com", endpoint=root / "dra.sock", versions=(), on_registered=lambda: None
        )

    def registered(self, path=None):
        return Registering(
            path or self.path, self.registration, coexistence=self, inventories=self, locks=self.locks, clock=SystemClock()
        ).registered()

    async def peer(self):
        return self.other

    def sibling(self):
        """The lock that the plugin of another pod holds while it lives."""
        return self.locks.try_hold("gpu.nvidia.com-old-reg.sock")


async def until(condition):
    async with asyncio.timeout(5):
        while not condition():  # noqa: ASYNC110 - a socket has no event
            await asyncio.sleep(0.005)


@pytest.fixture
def node(monkeypatch):
    monkeypatch.setattr(registering, "LOOK_SECONDS", 0.01)
    with tempfile.TemporaryDirectory(dir="/tmp") as path:
        yield Node(Path(path))


async def test_alone_on_its_node_a_plugin_registers_whatever_the_driver_says(node):
    """Claims of an earlier process must be unprepared in any case."""
    node.current = BROKEN
    async with node.registered():
        assert node.path.exists()
        assert node.registration.state.served
    assert not node.path.exists()
    assert not node.registration.state.served


async def test_in_an_update_a_plugin_whose_driver_is_ready_registers_at_once(node):
    held = node.sibling()
    async with node.registered():
        assert node.path.exists()
    os.close(held)


async def test_in_an_update_a_plugin_with_a_wrong_setting_leaves_the_calls_to_the_one_that_works(node):
    node.current = BROKEN
    held = node.sibling()
    async with node.registered():
        await until(lambda: "goes on serving: the driver root /opt/nowhere" in node.registration.state.reason)
        assert not node.path.exists()
        assert not node.registration.state.served, "liveness must not ask for it"
        node.current = READY
        await until(node.path.exists)
    os.close(held)


async def test_when_the_other_one_has_gone_it_registers_all_the_same(node):
    node.current = BROKEN
    held = node.sibling()
    async with node.registered():
        await asyncio.sleep(0.05)
        assert not node.path.exists()
        os.close(held)
        await until(node.path.exists)


async def test_beside_another_driver_of_our_name_it_waits_until_that_is_gone(node):
    node.other = "another DRA driver serves this node"
    async with node.registered():
        await until(lambda: node.registration.state.reason == node.other)
        assert not node.path.exists()
        node.other = ""
        await until(node.path.exists)


async def test_a_socket_that_cannot_be_opened_ends_the_start(node):
    with pytest.raises(Broken, match="cannot listen"):
        async with node.registered(node.path.parent / "nowhere" / "x.sock"):
            pass
