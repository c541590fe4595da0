"""A kubelet as a plugin sees it: watches the registry directory, registers, calls, and follows the health stream.

Speaks the same gRPC as the real one (k8s.io/kubelet `pkg/apis`), over one connection per plugin, with the kubelet's own deadlines.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc

from gpu_dra.node.generated.kubelet import dra_v1_pb2, dra_v1beta1_pb2, health_v1_pb2, registration_v1_pb2

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from gpu_dra.model.claim import ClaimRef

GET_INFO_SECONDS = 1.0
CALL_SECONDS = 45.0


@dataclass(frozen=True)
class Plugin:
    """A registered plugin."""

    info: registration_v1_pb2.PluginInfo
    socket: Path
    channel: grpc.aio.Channel


@dataclass
class FakeKubelet:
    """`refuse` makes registration fail with that text."""

    registry: Path
    refuse: str = ""
    plugins: dict[Path, Plugin] = field(default_factory=dict)

    async def register(self, *, within: float = 10.0) -> Plugin:
        """Wait for a registration socket, ask who it is, and say that it is taken (or refused)."""
        async with asyncio.timeout(within):
            while True:
                for socket in sorted(self.registry.glob("*.sock")):
                    if socket not in self.plugins:
                        with contextlib.suppress(grpc.aio.AioRpcError):
                            return await self._register(socket)
                await asyncio.sleep(0.01)

    async def _register(self, socket: Path) -> Plugin:
        async with grpc.aio.insecure_channel(f"unix:{socket}") as channel:
            info = await _call(
                channel,
                "/pluginregistration.Registration/GetInfo",
                registration_v1_pb2.InfoRequest(),
                registration_v1_pb2.PluginInfo,
                GET_INFO_SECONDS,
            )
            await _call(
                channel,
                "/pluginregistration.Registration/NotifyRegistrationStatus",
                registration_v1_pb2.RegistrationStatus(plugin_registered=not self.refuse, error=self.refuse),
                registration_v1_pb2.RegistrationStatusResponse,
                5.0,
            )
        plugin = Plugin(info, socket, grpc.aio.insecure_channel(f"unix:{info.endpoint}"))
        self.plugins[socket] = plugin
        return plugin

    async def close(self) -> None:
        """Drop all connections."""
        for plugin in self.plugins.values():
            await plugin.channel.close()
        self.plugins.clear()


async def prepare(plugin: Plugin, *refs: ClaimRef, version: str = "v1") -> dict[str, Any]:
    """NodePrepareResources for several claims in one call; answers by UID."""
    messages: Any = dra_v1_pb2 if version == "v1" else dra_v1beta1_pb2
    response = await _call(
        plugin.channel,
        f"/k8s.io.kubelet.pkg.apis.dra.{version}.DRAPlugin/NodePrepareResources",
        messages.NodePrepareResourcesRequest(claims=_claims(messages, refs)),
        messages.NodePrepareResourcesResponse,
        CALL_SECONDS,
    )
    return dict(response.claims)


async def unprepare(plugin: Plugin, *refs: ClaimRef, version: str = "v1") -> dict[str, Any]:
    """NodeUnprepareResources for several claims in one call; answers by UID."""
    messages: Any = dra_v1_pb2 if version == "v1" else dra_v1beta1_pb2
    response = await _call(
        plugin.channel,
        f"/k8s.io.kubelet.pkg.apis.dra.{version}.DRAPlugin/NodeUnprepareResources",
        messages.NodeUnprepareResourcesRequest(claims=_claims(messages, refs)),
        messages.NodeUnprepareResourcesResponse,
        CALL_SECONDS,
    )
    return dict(response.claims)


async def watch_health(plugin: Plugin, *, version: str = "v1") -> AsyncIterator[dict[str, tuple[int, str]]]:
    """Each report of the health stream, as device name → (health, message)."""
    call = plugin.channel.unary_stream(
        f"/{version}.DRAResourceHealth/NodeWatchResources",
        request_serializer=_serialize,
        response_deserializer=health_v1_pb2.NodeWatchResourcesResponse.FromString,
    )(health_v1_pb2.NodeWatchResourcesRequest())
    try:
        async for response in call:
            yield {device.device.device_name: (device.health, device.message) for device in response.devices}
    finally:
        call.cancel()


def _claims(messages: Any, refs: Sequence[ClaimRef]) -> list[Any]:
    return [messages.Claim(namespace=ref.namespace, uid=ref.uid, name=ref.name) for ref in refs]


async def _call(channel: grpc.aio.Channel, method: str, request: Any, answer: Any, seconds: float) -> Any:
    stub = channel.unary_unary(method, request_serializer=_serialize, response_deserializer=answer.FromString)
    return await stub(request, timeout=seconds)


def _serialize(message: Any) -> bytes:
    return message.SerializeToString()
