"""Take the product out of a cluster so that nothing is left behind and no pod is stuck.

Without its plugin a node cannot unprepare, and pods with claims would terminate for ever. So first nobody may hold a GPU; then the
plugins end, each of which takes its own node's slices and files along (`node.retire`); then it is looked again, since a pod may have been
scheduled meanwhile; then what dead nodes left in the API is swept. A node that is down is named and holds nobody up.
"""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING, Any, Final

from gpu_dra import DRIVER_NAME
from gpu_dra.core.errors import Conflict, NotReady
from gpu_dra.kube.api import DAEMON_SETS, NODES, PODS, RESOURCE_CLAIMS, RESOURCE_SLICES
from gpu_dra.kube.change import change
from gpu_dra.kube.errors import NotFound
from gpu_dra.lifecycle.label import unlabel_node
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
                raise Conflict(
                    f"GPUs are still in use after {seconds:g} s:{_listed(found)}\n"
                    "delete these pods (on a node that is down with --force) and uninstall again; nothing was removed by this run. "
                    "To go on with the release instead: helm rollback"
                )
            await self._clock.sleep(POLL_SECONDS)

    async def refuse_latecomers(self) -> None:
        """After the plugins have ended: raises Conflict when a pod got a GPU while they did, since nobody can end it now."""
        if found := await self.holders():
            raise Conflict(
                f"pods got GPUs while the plugins were ending:{_listed(found)}\n"
                "without a plugin they cannot end: helm rollback (or install again), then delete them, then uninstall again"
            )

    async def holders(self) -> list[str]:
        """Claims with devices of ours that somebody is entitled to, each in a line."""
        claims = (await self._api.list(RESOURCE_CLAIMS)).items
        return sorted(line for claim in claims if (line := holder(claim)))

    async def end_plugins(self, daemonsets: Sequence[str], *, instance: str) -> list[str]:
        """Delete the DaemonSets and wait for their pods; returns the nodes that are down, whose files stay.

        Raises NotReady naming pods that do not end.
        """
        down = {node["metadata"]["name"] for node in (await self._api.list(NODES)).items if not _is_ready(node)}
        stranded = sorted({node for _, node in await self._pods(instance)} & down)
        for name in daemonsets:
            with contextlib.suppress(NotFound):
                await self._api.delete(DAEMON_SETS, name, namespace=self._namespace)
        end = self._clock.monotonic() + PLUGINS_SECONDS
        while left := [f"{pod} on {node}" for pod, node in await self._pods(instance) if node not in down]:
            if self._clock.monotonic() >= end:
                raise NotReady(f"pods that do not end: {', '.join(left)}; look at their nodes, then uninstall again")
            await self._clock.sleep(POLL_SECONDS)
        return stranded

    async def sweep(self) -> list[str]:
        """Delete slices that no plugin took along; returns the names of their nodes, whose files stay."""
        slices = (await self._api.list(RESOURCE_SLICES, label_selector=OURS)).items
        for slice_ in slices:
            with contextlib.suppress(NotFound):  # the kubelet wipes them, too
                await self._api.delete(RESOURCE_SLICES, slice_["metadata"]["name"])
        return sorted({slice_["spec"].get("nodeName", "") for slice_ in slices})

    async def clear_nodes(self, labels: Sequence[str]) -> None:
        """Take the condition off every node that has it, and the labels that we set."""
        for node in (await self._api.list(NODES)).items:
            with contextlib.suppress(NotFound):  # an autoscaler took the node
                await self._clear(node, labels)

    async def _clear(self, node: Object, labels: Sequence[str]) -> None:
        name = node["metadata"]["name"]
        if set(labels) & (node["metadata"].get("labels") or {}).keys():
            await unlabel_node(self._api, name, labels)
        if _without_condition(node) is not None:  # most nodes of a large cluster have none, and need no question
            await change(self._api, NODES, name, _without_condition, status=True)

    async def _pods(self, instance: str) -> list[tuple[str, str]]:
        """Name and node of each pod of the release."""
        pods: list[tuple[str, str]] = []
        for component in ("node", "detector", "agent"):
            selector = {"app.kubernetes.io/instance": instance, "app.kubernetes.io/component": component}
            found = (await self._api.list(PODS, namespace=self._namespace, label_selector=selector)).items
            pods += [(pod["metadata"]["name"], pod["spec"].get("nodeName", "no node")) for pod in found]
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


def _listed(holders: Sequence[str]) -> str:
    more = f"\n  and {len(holders) - MOST_NAMED} more" if len(holders) > MOST_NAMED else ""
    return "".join(f"\n  {line}" for line in holders[:MOST_NAMED]) + more


def _is_ready(node: Object) -> bool:
    conditions = node.get("status", {}).get("conditions") or ()
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def _without_condition(node: Object) -> Object | None:
    before = node.get("status", {}).get("conditions") or []
    after = [each for each in before if each["type"] != NODE_CONDITION]
    return None if len(after) == len(before) else {**node, "status": {**node["status"], "conditions": after}}
