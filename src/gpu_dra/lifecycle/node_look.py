"""Look at the node now and then, and keep its GpuNode object saying what was seen; Events tell of what went wrong or well again."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Final

from gpu_dra.core.errors import GpuDraError
from gpu_dra.kube.api import NODES
from gpu_dra.kube.change import change
from gpu_dra.kube.errors import AlreadyExists, NotFound
from gpu_dra.kube.events import Reference, Severity
from gpu_dra.lifecycle.gpu_node import GPU_NODES, Seen, new, with_status
from gpu_dra.lifecycle.mig.label import STATE, State, wish_of
from gpu_dra.lifecycle.preflight.checks import Finding, Verdict, check
from gpu_dra.lifecycle.preflight.facts import read_facts
from gpu_dra.lifecycle.runtime.cri import ask_runtime
from gpu_dra.slices.marks import NODE_CONDITION

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from gpu_dra.core.clock import Clock
    from gpu_dra.hardware.host import HostPaths
    from gpu_dra.kube.api import KubeApi, Object
    from gpu_dra.kube.events import EventRecorder
    from gpu_dra.lifecycle.mig.geometry import Board
    from gpu_dra.lifecycle.mig.label import MigLabels
    from gpu_dra.lifecycle.mig.manager import MigManager

log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 15.0


class NodeLook:
    """One node's GpuNode."""

    def __init__(
        self,
        api: KubeApi,
        events: EventRecorder,
        *,
        manager: MigManager,
        labels: MigLabels,
        node_name: str,
        host: HostPaths,
        root: Path,
        clock: Clock,
    ) -> None:
        """`root`: the host's root directory as we see it."""
        self._api = api
        self._events = events
        self._manager = manager
        self._labels = labels
        self._node_name = node_name
        self._host = host
        self._root = root
        self._clock = clock
        self._told: dict[str, Finding] = {}

    async def run(self) -> None:
        """Look for ever."""
        while True:
            try:
                await self.look()
            except GpuDraError as error:
                log.warning("the GpuNode could not be written", extra={"error": str(error)})
            await self._clock.sleep(LOOK_SECONDS)

    async def look(self) -> None:
        """One look, and one write where something is new. Raises GpuDraError when the API server does not take it."""
        node = await self._api.get(NODES, self._node_name)
        facts = await asyncio.to_thread(read_facts, self._host, self._root)
        runtime = await ask_runtime(self._root)
        boards = await self._boards()
        findings = [*check(facts, runtime), *_offered(node), *self._geometry(node)]
        seen = Seen(
            facts=facts,
            runtime=runtime,
            boards=boards,
            findings=findings,
            driver_root=str(self._host.host_driver_root),
            mig=_mig(node),
        )
        self._tell(node, findings)
        await self._write(node, seen)

    async def _write(self, node: Object, seen: Seen) -> None:
        def decide(gpu_node: Object) -> Object | None:
            return with_status(gpu_node, seen, now=self._clock.wall())

        try:
            await change(self._api, GPU_NODES, self._node_name, decide, status=True)
        except NotFound:
            with contextlib.suppress(AlreadyExists):
                await self._api.create(GPU_NODES, new(node))
            await change(self._api, GPU_NODES, self._node_name, decide, status=True)

    async def _boards(self) -> Sequence[Board]:
        try:
            return await self._manager.boards_that_answer()
        except (
            GpuDraError
        ):  # what there is without NVML is told all the same, and the plugin tells of a driver that does not answer
            return ()

    def _geometry(self, node: Object) -> list[Finding]:
        name, answer = wish_of(node), self._labels.answer
        if name is None or answer is None or answer.config != name:
            return []
        verdict = Verdict.TRUE if answer.state is State.SUCCESS else Verdict.FALSE
        return [Finding(type="MigGeometry", verdict=verdict, reason=answer.reason, message=answer.message)]

    def _tell(self, node: Object, findings: Sequence[Finding]) -> None:
        """An Event for each condition that turned bad, or well again; those of MIG and of the plugin have been told by themselves."""
        about = Reference.of({"apiVersion": "v1", "kind": "Node", **node})
        for finding in findings:
            before = self._told.get(finding.type)
            self._told[finding.type] = finding
            if finding.type in {"MigGeometry", "Offered"} or (before is not None and before.verdict is finding.verdict):
                continue
            if finding.verdict is Verdict.FALSE:
                self._events.record(
                    about, severity=Severity.WARNING, reason=f"{finding.type}{finding.reason}", message=finding.message
                )
            elif finding.verdict is Verdict.TRUE and before is not None and before.verdict is Verdict.FALSE:
                self._events.record(
                    about, severity=Severity.NORMAL, reason=f"{finding.type}{finding.reason}", message=finding.message
                )


def _mig(node: Object) -> dict[str, str]:
    labels = node["metadata"].get("labels") or {}
    state = labels.get(STATE)
    found = {"config": wish_of(node), "state": state if state in set(State) else None}  # others write it, too
    return {key: value for key, value in found.items() if value}


def _offered(node: Object) -> list[Finding]:
    """What the plugin says on the Node, so that one object tells all."""
    for condition in node.get("status", {}).get("conditions") or ():
        if condition["type"] == NODE_CONDITION:
            return [
                Finding(
                    type="Offered",
                    verdict=Verdict(condition["status"]),
                    reason=condition.get("reason") or "Unknown",
                    message=condition.get("message") or "",
                )
            ]
    return [
        Finding(
            type="Offered", verdict=Verdict.UNKNOWN, reason="NoPlugin", message="no plugin of gpu-dra has spoken on this node yet"
        )
    ]
