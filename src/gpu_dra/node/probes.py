"""Whether this process lives and whether it is ready, answered by trying and not by remembering.

Alive: both own sockets answer within a second, as the kubelet would find them, and the directories of our files are there; a restart mends
either. Ready: also registered, the driver can be asked, and the
slices are as they should be. Not being ready always comes with sentences that say what is missing.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import grpc
from aiohttp import web
from grpc_health.v1 import health_pb2

from gpu_dra.core.errors import Broken
from gpu_dra.hardware.discovery import STALE
from gpu_dra.model.inventory import DriverState
from gpu_dra.node import handlers
from gpu_dra.node.generated.kubelet import dra_v1_pb2, registration_v1_pb2

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable
    from pathlib import Path

    from google.protobuf.message import Message

    from gpu_dra.node.metrics import NodeMetrics
    from gpu_dra.node.ports import Inventories
    from gpu_dra.node.registration import RegistrationState
    from gpu_dra.node.sockets import SocketPaths

PROBE_SECONDS = 1.0


class Probes:
    """The two questions of a kubelet's probe."""

    def __init__(
        self,
        sockets: SocketPaths,
        *,
        directories: Iterable[Path],
        inventories: Inventories,
        registration: RegistrationState,
        unpublished: Callable[[], str | None],
    ) -> None:
        self._sockets = sockets
        self._directories = tuple(directories)
        self._inventories = inventories
        self._registration = registration
        self._unpublished = unpublished
        self.stopping = False

    async def dead(self) -> list[str]:
        """Why the process should be restarted; empty when it lives."""
        calls: list[tuple[Path, str, Message]] = [
            (
                self._sockets.dra,
                "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodePrepareResources",
                dra_v1_pb2.NodePrepareResourcesRequest(),
            )
        ]
        if self._registration.served:  # it waits while somebody else serves this node, and a restart would not mend that
            calls.append(
                (self._sockets.registration, "/pluginregistration.Registration/GetInfo", registration_v1_pb2.InfoRequest())
            )
        troubles = [f"directory {path} is gone; a restart makes it" for path in self._directories if not path.is_dir()]
        for path, method, request in calls:
            async with grpc.aio.insecure_channel(f"unix:{path}") as channel:
                try:
                    await channel.unary_unary(method, _serialize)(request, timeout=PROBE_SECONDS)
                except grpc.aio.AioRpcError as error:
                    troubles.append(f"socket {path} does not answer: {error.code().name} {error.details()}")
        return troubles

    async def not_ready(self) -> list[str]:
        """Why new claims should not be expected to work; empty when ready."""
        if self.stopping:
            return ["the plugin is stopping"]
        return await self.dead() + self.why_not_offered()

    def why_not_offered(self) -> list[str]:
        """What keeps this node's GPUs from pods, from memory; empty when nothing does."""
        troubles = []
        if not self._registration.registered:
            troubles.append(self._registration.reason)
        inventory = self._inventories.current
        if inventory.state is not DriverState.READY:
            troubles.append(inventory.reason)
        if self._inventories.age > STALE:
            troubles.append(
                f"the GPUs were last looked at {self._inventories.age:.0f} s ago; see the plugin's log, restart its pod"
            )
        if unpublished := self._unpublished():
            troubles.append(unpublished)
        return troubles

    def grpc_handlers(self) -> list[grpc.GenericRpcHandler]:
        """`grpc.health.v1.Health`: service `liveness` for liveness, the empty name for readiness, as NVIDIA's driver names them."""

        async def check(request: health_pb2.HealthCheckRequest, _context: Any) -> health_pb2.HealthCheckResponse:  # noqa: ANN401
            troubles = await (self.dead() if request.service == "liveness" else self.not_ready())
            status = health_pb2.HealthCheckResponse
            return status(status=status.NOT_SERVING if troubles else status.SERVING)

        return [handlers.service("grpc.health.v1.Health", {"Check": handlers.unary(check, health_pb2.HealthCheckRequest)})]


@contextlib.asynccontextmanager
async def serving_grpc_health(probes: Probes, *, port: int) -> AsyncIterator[int]:
    """Serve grpc.health.v1 on a TCP port (0: a free one), which is yielded. Raises Broken when the port is taken."""
    server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
    server.add_generic_rpc_handlers(tuple(probes.grpc_handlers()))
    try:
        bound = server.add_insecure_port(f"[::]:{port}")
    except RuntimeError as error:
        raise Broken(
            f"cannot listen on port {port} for health checks; is it taken? set --healthcheck-port to a free one"
        ) from error
    await server.start()
    try:
        yield bound
    finally:
        await server.stop(0)


@contextlib.asynccontextmanager
async def serving_http(probes: Probes, metrics: NodeMetrics, *, endpoint: str) -> AsyncIterator[None]:
    """Serve /healthz, /readyz and /metrics on `host:port`. Raises Broken when the address cannot be bound."""

    async def answer(troubles: list[str]) -> web.Response:
        return web.Response(text="\n".join(troubles or ["ok"]) + "\n", status=503 if troubles else 200)

    async def healthz(_request: web.Request) -> web.Response:
        return await answer(await probes.dead())

    async def readyz(_request: web.Request) -> web.Response:
        return await answer(await probes.not_ready())

    async def exposition(_request: web.Request) -> web.Response:
        return web.Response(body=metrics.exposition(), headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})

    application = web.Application()
    application.add_routes([web.get("/healthz", healthz), web.get("/readyz", readyz), web.get("/metrics", exposition)])
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    host, _, port = endpoint.rpartition(":")
    try:
        await web.TCPSite(runner, host.strip("[]") or None, int(port)).start()
    except OSError as error:
        await runner.cleanup()
        raise Broken(f"cannot listen on {endpoint}: {error.strerror or error}; set --http-endpoint to a free address") from error
    try:
        yield
    finally:
        await runner.cleanup()


def _serialize(message: Message) -> bytes:
    return message.SerializeToString()
