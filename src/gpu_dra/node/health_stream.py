"""The kubelet's DRAResourceHealth stream, v1 and v1alpha1: what discovery knows about each device, again and again.

Contract: k8s.io/kubelet `pkg/apis/dra-health`. Each answer is the complete list; a device not heard of for `TIMEOUT_SECONDS` reads
Unknown in the pod's status, so the list is sent at least every `HEARTBEAT_SECONDS`, changed or not.
"""

from __future__ import annotations

import asyncio
import contextlib
from types import ModuleType
from typing import TYPE_CHECKING, Any

from gpu_dra.hardware.discovery import STALE
from gpu_dra.node import handlers
from gpu_dra.node.generated.kubelet import health_v1_pb2, health_v1alpha1_pb2

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import grpc

    from gpu_dra.core.clock import Clock
    from gpu_dra.model.inventory import Inventory
    from gpu_dra.node.ports import Inventories

SUPPORTED_VERSIONS = ("v1.DRAResourceHealth", "v1alpha1.DRAResourceHealth")
HEARTBEAT_SECONDS = 10.0
TIMEOUT_SECONDS = 30
MOST_MESSAGE = 1024
"""The kubelet cuts longer messages (k8s.io/kubernetes pkg/kubelet/cm/dra/healthinfo.go)."""


class HealthReport:
    """Health by device name. A device that was seen once and has vanished is unhealthy, not forgotten."""

    def __init__(self) -> None:
        self._seen: set[str] = set()

    def of(self, inventory: Inventory) -> dict[str, str | None]:
        """Why each device is unhealthy; None where nothing is known against it."""
        report: dict[str, str | None] = {}
        for gpu in inventory.gpus:
            devices = gpu.mig_devices if gpu.in_mig_mode else (gpu,)
            report.update({device.name: gpu.unhealthy for device in devices})
        for name in self._seen - report.keys():
            report[name] = _absence(name, inventory)
        self._seen |= report.keys()
        return report


class HealthService:
    """Serves any number of streams from one report."""

    def __init__(self, inventories: Inventories, *, pool: str, clock: Clock) -> None:
        self._inventories = inventories
        self._pool = pool
        self._clock = clock
        self._report = HealthReport()
        self._ended = asyncio.Event()

    def end(self) -> None:
        """Let every stream end by itself, so that a stopping server does not wait for clients that keep theirs open."""
        self._ended.set()

    def handlers(self) -> list[grpc.GenericRpcHandler]:
        """What to add to the server."""
        return [
            handlers.service(
                f"{version}.DRAResourceHealth",
                {"NodeWatchResources": handlers.stream(self._watch(messages), messages.NodeWatchResourcesRequest)},
            )
            for version, messages in (("v1", health_v1_pb2), ("v1alpha1", health_v1alpha1_pb2))
        ]

    def _watch(self, messages: ModuleType) -> Any:  # noqa: ANN401 - a grpc stream handler
        async def watch(_request: object, _context: object) -> AsyncIterator[Any]:
            changes = self._inventories.changes()
            newest: asyncio.Task[Inventory] = asyncio.ensure_future(anext(changes))
            ended = asyncio.ensure_future(self._ended.wait())
            try:
                while not self._ended.is_set():
                    heartbeat = asyncio.ensure_future(self._clock.sleep(HEARTBEAT_SECONDS))
                    await asyncio.wait({newest, heartbeat, ended}, return_when=asyncio.FIRST_COMPLETED)
                    heartbeat.cancel()
                    if newest.done():
                        newest = asyncio.ensure_future(anext(changes))
                    yield self._message(messages)
            finally:
                ended.cancel()
                newest.cancel()
                with contextlib.suppress(asyncio.CancelledError, StopAsyncIteration):
                    await newest

        return watch

    def _message(self, messages: ModuleType) -> Any:  # noqa: ANN401 - a message of either version
        looked = int(self._clock.wall() - self._inventories.age)
        stale = self._inventories.age > STALE
        response = messages.NodeWatchResourcesResponse()
        for name, trouble in sorted(self._report.of(self._inventories.current).items()):
            response.devices.append(
                messages.DeviceHealth(
                    device=messages.DeviceIdentifier(pool_name=self._pool, device_name=name),
                    health=messages.UNKNOWN if stale else messages.HEALTHY if trouble is None else messages.UNHEALTHY,
                    last_updated_time=looked,
                    health_check_timeout_seconds=TIMEOUT_SECONDS,
                    message=(trouble or "")[:MOST_MESSAGE],
                )
            )
        return response


def _absence(name: str, inventory: Inventory) -> str:
    if inventory.reason:
        return inventory.reason
    for gpu in inventory.gpus:
        if gpu.name == name and gpu.in_mig_mode:
            return f"{name} ({gpu.pci}) is in MIG mode now and cannot be used whole"
    reasons = "; ".join(f"{fault.where}: {fault.reason}" for fault in inventory.faults)
    return f"{name} is no longer on this node" + (f" ({reasons})" if reasons else "")
