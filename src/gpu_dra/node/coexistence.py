"""Whether somebody else offers this node's GPUs, so that no GPU is ever given away twice.

Two others exist. NVIDIA's device plugin advertises extended resources in the Node's capacity, which the scheduler counts apart from
claims. NVIDIA's own DRA driver has our driver's name; it registers with the kubelet through a socket without a pod UID in its name, and
the kubelet would call whoever registered last. While either is there we publish nothing and do not register.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final

import grpc

from gpu_dra.core.errors import GpuDraError, NotReady
from gpu_dra.kube.api import NODES
from gpu_dra.node.generated.kubelet import registration_v1_pb2

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from gpu_dra.core.clock import Clock
    from gpu_dra.core.locks import LockDirectory
    from gpu_dra.kube.api import KubeApi

log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 20.0
"""Between two looks."""
FIRST_LOOK_SECONDS: Final = 2.0
"""Between two looks until one gets an answer: nothing is published before."""
CLEAR_LOOKS: Final = 4
"""Looks in a row that must find nobody: a device plugin's capacity is 0 for a moment after each restart of the kubelet."""
_ANSWER_SECONDS: Final = 1.0
"""The kubelet gives GetInfo as long."""
_EXTENDED_RESOURCES: Final = ("nvidia.com/gpu", "nvidia.com/mig-")
"""Beginnings of the names under which the device plugin advertises (k8s-device-plugin, resource naming)."""


def advertised(node: Mapping[str, Any]) -> dict[str, str]:
    """Extended resources of NVIDIA's device plugin that the Node has, by name; one that is down to 0 belongs to nobody."""
    capacity = node.get("status", {}).get("capacity", {})
    return {name: count for name, count in sorted(capacity.items()) if name.startswith(_EXTENDED_RESOURCES) and count != "0"}


class Coexistence:
    """Looks again and again; `reason` says who else offers the GPUs, and is empty when nobody does."""

    def __init__(
        self,
        api: KubeApi,
        *,
        driver: str,
        node_name: str,
        registrar: Path,
        locks: LockDirectory,
        beside_device_plugin: bool,
        clock: Clock,
    ) -> None:
        """`locks` tells our own processes from others; `beside_device_plugin` lets the device plugin offer other GPUs of the node."""
        self._api = api
        self._node_name = node_name
        self._peer = registrar / f"{driver}-reg.sock"
        self._locks = locks
        self._beside_device_plugin = beside_device_plugin
        self._clock = clock
        self.reason = ""
        self.changed = asyncio.Event()
        """Set when `reason` is another one, and once it is known at all."""
        self.known = False
        """False until the first look that got an answer."""
        self._clear = 0
        """Looks in a row that found nobody, while somebody was there before."""
        self.doubt = ""
        """Why the last look got no answer; empty when it got one."""

    async def run(self) -> None:
        """Look for ever. An API that does not answer leaves things as they are."""
        while True:
            await self.look()
            await self._clock.sleep(LOOK_SECONDS if self.known and not self._clear else FIRST_LOOK_SECONDS)

    @property
    def obstacle(self) -> str:
        """What keeps us from offering anything: somebody else, or that it is not known yet; empty when nothing does."""
        if self.reason or self.known or not self.doubt:
            return self.reason
        return f"it is not known whether other drivers offer this node's GPUs: {self.doubt}"

    async def peer(self) -> str:
        """Whether another DRA driver serves this node, in a sentence; empty when none does. Needs no API."""
        try:
            return await self._other_driver()
        except NotReady as doubt:
            return str(doubt)

    async def look(self) -> str:
        """Look now; returns the reason."""
        try:
            reason = await self._other_driver() or await self._device_plugin()
        except GpuDraError as error:
            if str(error) != self.doubt:
                log.warning("cannot look for other drivers", extra={"error": str(error)})
            self.doubt = str(error)
            return self.reason
        self.doubt = ""
        if not self.known:
            self.known = True
            self.changed.set()
        self._clear = 0 if reason else self._clear + 1
        if self.reason and 0 < self._clear < CLEAR_LOOKS:
            return self.reason
        self._clear = 0
        if reason != self.reason:
            log.warning(
                "nothing is offered on this node" if reason else "this node's GPUs are ours to offer again",
                extra={"reason": reason},
            )
            self.reason = reason
            self.changed.set()
        return reason

    async def _device_plugin(self) -> str:
        if self._beside_device_plugin:
            return ""
        found = advertised(await self._api.get(NODES, self._node_name))
        if not found:
            return ""
        resources = ", ".join(f"{name}: {count}" for name, count in found.items())
        return (
            f"NVIDIA's device plugin advertises the GPUs of this node ({resources}); remove it from this node, "
            "or set coexistence.devicePlugin=allow if it offers other GPUs"
        )

    async def _other_driver(self) -> str:
        if not self._peer.is_socket() or self._locks.is_held_elsewhere(self._peer.name):
            return ""  # nobody, or a process of ours, which holds the lock of its socket's name
        async with grpc.aio.insecure_channel(f"unix:{self._peer}") as channel:
            call = channel.unary_unary(
                "/pluginregistration.Registration/GetInfo",
                request_serializer=registration_v1_pb2.InfoRequest.SerializeToString,
                response_deserializer=registration_v1_pb2.PluginInfo.FromString,
            )
            try:
                await call(registration_v1_pb2.InfoRequest(), timeout=_ANSWER_SECONDS)
            except grpc.aio.AioRpcError as error:
                if error.code() is grpc.StatusCode.UNAVAILABLE:
                    return ""  # left by a process that is gone
                raise NotReady(
                    f"{self._peer} is there and does not answer in time ({error.code().name}); is it another driver's?"
                ) from error
        return f"another DRA driver serves this node ({self._peer} answers); uninstall it, its claims are then ours to prepare"
