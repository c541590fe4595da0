"""Read a node's wish for a MIG geometry from its labels, and say there and in Events what became of it.

Contract: labels of NVIDIA's MIG manager. A label is no place for a reason, so that each new answer is an Event of the Node as well.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from gpu_dra.core.backoff import Backoff
from gpu_dra.core.errors import Conflict, GpuDraError, NotReady
from gpu_dra.kube.api import NODES
from gpu_dra.kube.change import change
from gpu_dra.kube.events import Reference, Severity
from gpu_dra.kube.watch import Changed, Selection, follow

if TYPE_CHECKING:
    from gpu_dra.core.clock import Clock
    from gpu_dra.kube.api import KubeApi, Object
    from gpu_dra.kube.events import EventRecorder
    from gpu_dra.lifecycle.mig.manager import MigManager

log = logging.getLogger(__name__)

CONFIG: Final = "nvidia.com/mig.config"
STATE: Final = "nvidia.com/mig.config.state"
LOOK_SECONDS: Final = 30.0
"""Between looks that nothing asked for: a person may cut a GPU by hand, a reboot forgets what was cut."""
AGAIN_SECONDS: Final = 10.0
"""While somebody holds a GPU that is to be cut."""
MOST_SECONDS: Final = 600.0
"""Between tries that take GPUs out of service and come to nothing: a node is not kept out of work by what does not work."""


class State(StrEnum):
    """Values of the state label."""

    PENDING = "pending"
    SUCCESS = "success"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What became of the wish."""

    config: str
    state: State
    reason: str
    message: str


class MigLabels:
    """Brings geometry and labels of one node together, for ever."""

    def __init__(self, api: KubeApi, manager: MigManager, events: EventRecorder, *, node_name: str, clock: Clock) -> None:
        self._api = api
        self._manager = manager
        self._events = events
        self._node_name = node_name
        self._clock = clock
        self._asked = asyncio.Event()
        self._told = ""
        self.answer: Answer | None = None
        """Of the newest look; None without a wish."""

    async def watch(self) -> None:
        """Notice another wish at once. Raises Refused when the account may not watch nodes."""
        wish: str | None = None
        selection = Selection(resource=NODES, fields={"metadata.name": self._node_name})
        async with contextlib.aclosing(follow(self._api, selection, clock=self._clock)) as changes:
            async for each in changes:
                if isinstance(each, Changed) and wish_of(each.object) != wish:
                    wish = wish_of(each.object)
                    self._asked.set()

    async def run(self) -> None:
        """Look at each new wish, and now and then, for ever."""
        backoff = Backoff(first=2 * LOOK_SECONDS, most=MOST_SECONDS)
        while True:
            if self._asked.is_set():
                backoff.reset()
            self._asked.clear()
            seconds = LOOK_SECONDS
            try:
                state = await self.look()
                if state in (None, State.SUCCESS):
                    backoff.reset()
                elif self._manager.worked:
                    seconds = backoff.next()
                elif state is State.PENDING:
                    seconds = AGAIN_SECONDS
            except GpuDraError as error:
                log.warning("cannot see or tell how this node is to be cut", extra={"error": str(error)})
            await self._sleep(seconds)

    async def look(self) -> State | None:
        """Do what the label asks; the state that was told, None without a wish. Raises GpuDraError when it could not be told."""
        node = await self._api.get(NODES, self._node_name)
        name = wish_of(node)
        if name is None:
            await self._label(None)
            self.answer = None
            return None
        try:
            changes = await self._manager.changes(name)
            if changes:
                message = f"the GPUs are being cut as {name} says"
                self.answer = Answer(config=name, state=State.PENDING, reason="MigConfigApplying", message=message)
                await self._label(State.PENDING)
                await self._manager.apply(changes, name)
        except (Conflict, NotReady) as error:
            waits = f"to be cut as {name} says: {error}"
            return await self._tell(node, Answer(config=name, state=State.PENDING, reason="MigConfigWaits", message=waits))
        except GpuDraError as error:
            return await self._tell(node, Answer(config=name, state=State.FAILED, reason="MigConfigFailed", message=str(error)))
        done = f"the GPUs are cut as {name} says" + "".join(f"; {each}" for each in changes)
        answer = Answer(config=name, state=State.SUCCESS, reason="MigConfigApplied", message=done)
        return await self._tell(node, answer, quiet=not changes)

    async def _tell(self, node: Object, answer: Answer, *, quiet: bool = False) -> State:
        self.answer, state, message = answer, answer.state, answer.message
        await self._label(state)
        if message != self._told and not quiet:
            severity = Severity.NORMAL if state is State.SUCCESS else Severity.WARNING
            log.log(logging.INFO if state is State.SUCCESS else logging.WARNING, "MIG", extra={"state": state, "message_": message})
            self._events.record(
                Reference.of({"apiVersion": "v1", "kind": "Node", **node}), severity=severity, reason=answer.reason, message=message
            )
        self._told = message
        return state

    async def _label(self, state: State | None) -> None:
        def decide(node: Object) -> Object | None:
            labels = dict(node["metadata"].get("labels") or {})
            if labels.get(STATE) == state:
                return None
            labels.pop(STATE, None)
            if state is not None:
                labels[STATE] = str(state)
            return {**node, "metadata": {**node["metadata"], "labels": labels}}

        await change(self._api, NODES, self._node_name, decide)

    async def _sleep(self, seconds: float) -> None:
        """Until it is time, or something is asked."""
        asked = asyncio.ensure_future(self._asked.wait())
        slept = asyncio.ensure_future(self._clock.sleep(seconds))
        try:
            await asyncio.wait({asked, slept}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            asked.cancel()
            slept.cancel()


def wish_of(node: Object) -> str | None:
    """The configuration that the node's label asks for; None without the label, or with an empty one."""
    return (node["metadata"].get("labels") or {}).get(CONFIG) or None
