"""Tell on the Node object whether its GPUs are offered, and if not, what to do: `kubectl describe node` shows condition and Event.

Written only when the answer changes. Source: core/v1 NodeCondition; types other than the kubelet's are free for others to set.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Any, Final

from gpu_dra.core.errors import GpuDraError
from gpu_dra.kube.api import NODES
from gpu_dra.kube.change import change
from gpu_dra.kube.events import Reference, Severity
from gpu_dra.slices.marks import NODE_CONDITION

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpu_dra.core.clock import Clock
    from gpu_dra.kube.api import KubeApi, Object
    from gpu_dra.kube.events import EventRecorder

log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 2.0
SETTLE_SECONDS: Final = 10.0
"""A trouble is told when it has lasted this long: starting up is none."""
AGAIN_SECONDS: Final = 60.0
FAREWELL_SECONDS: Final = 3.0
"""For the last word; a stop does not wait longer for an API server that is away."""


def condition(troubles: list[str], *, now: float) -> Object:
    """The condition while a plugin is there to look."""
    if troubles:
        return _condition("False", "NotOffered", "; ".join(troubles), now)
    return _condition("True", "Offered", "this node's GPUs are published as ResourceSlices", now)


def unwatched(*, now: float) -> Object:
    """The condition when the plugin has ended: it is for the next one to say more."""
    message = "the GPU plugin of this node has ended and none has taken over; running pods keep their GPUs, new ones do not start"
    return _condition("Unknown", "PluginEnded", message, now)


def _condition(status: str, reason: str, message: str, now: float) -> Object:
    """The condition as core/v1 has it."""
    stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now))
    return {
        "type": NODE_CONDITION,
        "status": status,
        "reason": reason,
        "message": message,
        "lastHeartbeatTime": stamp,
        "lastTransitionTime": stamp,
    }


def with_condition(node: Object, new: Object) -> Object | None:
    """The Node with the condition set; None when it says so already. The time of transition stays while the status does."""
    conditions: list[dict[str, Any]] = list(node.get("status", {}).get("conditions") or ())
    old = next((each for each in conditions if each["type"] == NODE_CONDITION), None)
    if old is not None and all(old.get(key) == new[key] for key in ("status", "reason", "message")):
        return None
    if old is not None and old["status"] == new["status"]:
        new = {**new, "lastTransitionTime": old["lastTransitionTime"]}
    others = [each for each in conditions if each["type"] != NODE_CONDITION]
    return {**node, "status": {**node.get("status", {}), "conditions": [*others, new]}}


class NodeReport:
    """Keeps condition and Events in step with what `troubles` says."""

    def __init__(
        self,
        api: KubeApi,
        *,
        node_name: str,
        troubles: Callable[[], list[str]],
        speaks: Callable[[], bool],
        events: EventRecorder,
        clock: Clock,
    ) -> None:
        """`speaks`: this process publishes; in an update the other one's word is the condition, and ours an Event."""
        self._api = api
        self._node_name = node_name
        self._troubles = troubles
        self._speaks = speaks
        self._events = events
        self._clock = clock
        self._ended = False

    async def run(self) -> None:
        """Report for ever; what cannot be written is tried again a minute later."""
        told: tuple[list[str], bool] | None = None
        since, last = self._clock.monotonic(), self._troubles()
        while True:
            await self._clock.sleep(LOOK_SECONDS)
            if self._ended:
                continue
            now = self._troubles()
            if now != last:
                since, last = self._clock.monotonic(), now
            if (now, self._speaks()) == told or (now and self._clock.monotonic() - since < SETTLE_SECONDS):
                continue
            try:
                await self._tell(now, quiet=told is None and not now)
                told = now, self._speaks()
            except GpuDraError as error:
                log.warning("the Node's condition could not be written", extra={"error": str(error)})
                await self._clock.sleep(AGAIN_SECONDS)

    async def end(self) -> None:
        """Leave no "True" behind that nobody watches. Called while this process still publishes, so that a successor speaks later."""
        self._ended = True
        if not self._speaks():
            return
        new = unwatched(now=self._clock.wall())
        try:
            async with asyncio.timeout(FAREWELL_SECONDS):
                await change(self._api, NODES, self._node_name, lambda node: with_condition(node, new), status=True)
        except (GpuDraError, TimeoutError) as error:
            log.warning("the Node's condition stays as it is", extra={"error": str(error) or "no answer in time"})

    async def _tell(self, troubles: list[str], *, quiet: bool) -> None:
        """Condition first; an Event goes with each change but the first good news."""
        new = condition(troubles, now=self._clock.wall())
        speaks = self._speaks()
        if speaks:
            node = await change(self._api, NODES, self._node_name, lambda node: with_condition(node, new), status=True)
            if node is None:
                return
        else:
            node = await self._api.get(NODES, self._node_name)
        if quiet or not (speaks or troubles):
            return
        about = Reference.of({"apiVersion": "v1", "kind": "Node", **node})
        severity = Severity.WARNING if troubles else Severity.NORMAL
        reason, message = f"NvidiaGPUs{new['reason']}", new["message"]
        if not speaks:
            reason, message = (
                "GPUPluginNotReady",
                f"the plugin that is to take over is not ready; the one before goes on: {message}",
            )
        self._events.record(about, severity=severity, reason=reason, message=message)
