"""Take the product out of a cluster so that nothing is left behind and no pod is stuck.

Without its plugin a node cannot unprepare, and pods with claims would terminate for ever. So first nobody may hold a GPU; then the
plugins end, each of which takes its own node's slices and files along (`node.retire`); then what dead nodes left in the API is swept.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from gpu_dra import DRIVER_NAME
from gpu_dra.core.errors import Conflict, NotReady
from gpu_dra.kube.api import DAEMON_SETS, NODES, PODS, RESOURCE_CLAIMS, RESOURCE_SLICES
from gpu_dra.kube.change import change
from gpu_dra.kube.errors import NotFound
from gpu_dra.lifecycle.label import GPU_PRESENT, unlabel_node
from gpu_dra.slices.marks import NODE_CONDITION, OURS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpu_dra.core.clock import Clock
    from gpu_dra.kube.api import KubeApi, Object

log = logging.getLogger(__name__)

POLL_SECONDS: Final = 1.0
MOST_NAMED: Final = 20
"""Holders that one message names."""
PLUGINS_SECONDS: Final = 90.0
"""For the plugins' pods to end; they have 30 s of grace each."""


class Uninstall:
    """The steps, each of which may be run again."""

    def __init__(self, api: KubeApi, *, namespace: str, clock: Clock) -> None:
        self._api = api
        self._namespace = namespace
        self._clock = clock

    async def wait_for_holders(self, *, seconds: float) -> None:
        """Return once no pod holds a claim of ours. Raises Conflict with the list of those who still do."""
        end = self._clock.monotonic() + seconds
        while found := await self.holders():
            if self._clock.monotonic() >= end:
                more = f"\n  and {len(found) - MOST_NAMED} more" if len(found) > MOST_NAMED else ""
                lines = "".join(f"\n  {line}" for line in found[:MOST_NAMED])
                raise Conflict(
                    f"{len(found)} claims on GPUs are still in use after {seconds:g} s:{lines}{more}\n"
                    "delete these pods and uninstall again; nothing was removed"
                )
            await self._clock.sleep(POLL_SECONDS)

    async def holders(self) -> list[str]:
        """Claims with devices of ours that somebody is entitled to, each in a line."""
        claims = (await self._api.list(RESOURCE_CLAIMS)).items
        return sorted(line for claim in claims if (line := holder(claim)))

    async def end_plugins(self, daemonsets: Sequence[str], *, instance: str) -> bool:
        """Delete the DaemonSets and wait for their pods; True when any was there. Raises NotReady naming pods that do not end."""
        found = False
        for name in daemonsets:
            try:
                await self._api.delete(DAEMON_SETS, name, namespace=self._namespace)
                found = True
            except NotFound:
                continue
        end = self._clock.monotonic() + PLUGINS_SECONDS
        while left := await self._pods(instance):
            if self._clock.monotonic() >= end:
                raise NotReady(
                    f"pods that do not end: {', '.join(left)}; their nodes may be down: delete these Node objects or the pods "
                    "(kubectl delete pod --force), then uninstall again"
                )
            await self._clock.sleep(POLL_SECONDS)
        return found

    async def sweep(self) -> list[str]:
        """Delete slices that no plugin took along; returns the names of their nodes, whose files stay."""
        slices = (await self._api.list(RESOURCE_SLICES, label_selector=OURS)).items
        for slice_ in slices:
            await self._api.delete(RESOURCE_SLICES, slice_["metadata"]["name"])
        return sorted({slice_["spec"].get("nodeName", "") for slice_ in slices})

    async def clear_nodes(self) -> None:
        """Take label and condition off every node that has them."""
        for node in (await self._api.list(NODES)).items:
            name = node["metadata"]["name"]
            if GPU_PRESENT in (node["metadata"].get("labels") or {}):
                await unlabel_node(self._api, name)
            if _without_condition(node) is not None:  # most nodes of a large cluster have none, and need no question
                await change(self._api, NODES, name, _without_condition, status=True)

    async def _pods(self, instance: str) -> list[str]:
        pods: list[str] = []
        for component in ("node", "detector"):
            selector = {"app.kubernetes.io/instance": instance, "app.kubernetes.io/component": component}
            found = (await self._api.list(PODS, namespace=self._namespace, label_selector=selector)).items
            pods += [f"{pod['metadata']['name']} on {pod['spec'].get('nodeName', 'no node')}" for pod in found]
        return pods


def holder(claim: Mapping[str, Any]) -> str:
    """`namespace/claim: pods a, b on node n`; empty for a claim without a device of ours or without a user."""
    status = claim.get("status") or {}
    results = ((status.get("allocation") or {}).get("devices") or {}).get("results") or []
    nodes = sorted({result["pool"] for result in results if result.get("driver") == DRIVER_NAME})
    users = sorted(user["name"] for user in status.get("reservedFor") or ())
    if not nodes or not users:
        return ""
    metadata = claim["metadata"]
    return f"{metadata['namespace']}/{metadata['name']}: {', '.join(users)} on node {', '.join(nodes)}"


def _without_condition(node: Object) -> Object | None:
    before = node.get("status", {}).get("conditions") or []
    after = [each for each in before if each["type"] != NODE_CONDITION]
    return None if len(after) == len(before) else {**node, "status": {**node["status"], "conditions": after}}
