"""What this node offers, from what changes by itself: its hardware, whether somebody else offers it, and which GPUs are being worked on."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final

from gpu_dra import DRIVER_NAME
from gpu_dra.slices.build import build_slices
from gpu_dra.slices.pool import DesiredPool

if TYPE_CHECKING:
    from gpu_dra.kube.api import KubeApi
    from gpu_dra.model.inventory import Inventory
    from gpu_dra.node.coexistence import Coexistence
    from gpu_dra.node.metrics import NodeMetrics
    from gpu_dra.node.ports import Inventories
    from gpu_dra.node.reserved import ReservedGpus
    from gpu_dra.slices.publisher import SlicePublisher


KUBELET_SECONDS: Final = 5.0
"""To wait for the kubelet before the first publication; it looks for plugins every second."""


class Offers:
    """Hands each new state to the publisher, in the form that this API server's version takes."""

    def __init__(
        self,
        inventories: Inventories,
        coexistence: Coexistence,
        reserved: ReservedGpus,
        publisher: SlicePublisher,
        api: KubeApi,
        *,
        metrics: NodeMetrics,
        node_name: str,
        taken: asyncio.Event,
    ) -> None:
        """`taken`: the kubelet has taken this plugin."""
        self._inventories = inventories
        self._coexistence = coexistence
        self._reserved = reserved
        self._publisher = publisher
        self._api = api
        self._metrics = metrics
        self._node_name = node_name
        self._taken = taken

    async def run(self) -> None:
        """Publish each change, for ever; nothing before it is known that the GPUs are ours to offer.

        The kubelet comes first: a pod that is scheduled before it knows us fails to prepare and is tried again a minute later only.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(KUBELET_SECONDS):
                await self._taken.wait()
        changes = self._inventories.changes()
        newest: asyncio.Task[Inventory] = asyncio.ensure_future(anext(changes))
        verdict = asyncio.ensure_future(self._coexistence.changed.wait())
        reserved = asyncio.ensure_future(self._reserved.changed.wait())
        known = False
        try:
            while True:
                await asyncio.wait({newest, verdict, reserved}, return_when=asyncio.FIRST_COMPLETED)
                if newest.done():
                    known = True
                    self._metrics.set_inventory(newest.result())
                    newest = asyncio.ensure_future(anext(changes))
                if verdict.done():
                    self._coexistence.changed.clear()
                    verdict = asyncio.ensure_future(self._coexistence.changed.wait())
                if reserved.done():
                    self._reserved.changed.clear()
                    reserved = asyncio.ensure_future(self._reserved.changed.wait())
                if known and self._coexistence.known:
                    self._publisher.publish(await self._pool(self._inventories.current))
        finally:
            verdict.cancel()
            reserved.cancel()
            newest.cancel()
            with contextlib.suppress(asyncio.CancelledError, StopAsyncIteration):
                await newest

    async def _pool(self, inventory: Inventory) -> DesiredPool:
        if self._coexistence.reason:
            return DesiredPool(driver=DRIVER_NAME, node_name=self._node_name, slices=())
        offered = self._reserved.without(inventory)
        return build_slices(offered, node_name=self._node_name, server_version=await self._api.server_version())
