"""Kubernetes Events about a claim, a pod or a node: what `kubectl describe` shows.

Best effort by design: recording never waits, never raises and never makes the API server's day worse. The same thing said again is
counted, not written again; an object has a budget of different things said about it; what cannot be written is dropped.
Source: core/v1 Event. Needs the rights to create and update events.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections import Counter, OrderedDict
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from gpu_dra.core.errors import GpuDraError
from gpu_dra.kube.api import EVENTS
from gpu_dra.kube.errors import NotFound

if TYPE_CHECKING:
    from gpu_dra.core.clock import Clock
    from gpu_dra.kube.api import KubeApi, Object

log = logging.getLogger(__name__)

REPEAT_SECONDS = 60.0
"""A repeated event is counted, and the count is written at most this often."""

DIFFERENT_PER_OBJECT = 10
"""Different events about one object that are remembered; further ones are dropped until older ones are forgotten."""

FORGOTTEN_SECONDS = 3600.0
"""After which an event that was not repeated is forgotten, as by the API server (kube-apiserver --event-ttl)."""

REMEMBERED = 500
"""Events remembered for counting; the least recently repeated is forgotten first."""

WAITING = 100
"""Events waiting to be written; more are dropped."""

SECONDS_PER_WRITE = 0.2
"""Pause after each write: five a second at most."""

MESSAGE_CHARACTERS = 1024
"""Longest message (core/v1 Event validation, noteLengthLimit)."""


class Severity(StrEnum):
    """`type` of an Event."""

    NORMAL = "Normal"
    WARNING = "Warning"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """The object that an event is about."""

    api_version: str
    kind: str
    name: str
    uid: str
    namespace: str | None = None

    @classmethod
    def of(cls, item: Object) -> Reference:
        """The reference to an object as the API gave it."""
        metadata = item["metadata"]
        return cls(
            api_version=item["apiVersion"],
            kind=item["kind"],
            name=metadata["name"],
            uid=metadata["uid"],
            namespace=metadata.get("namespace"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Saying:
    """What makes two events the same one."""

    about: Reference
    severity: Severity
    reason: str
    message: str


@dataclass(slots=True, kw_only=True)
class _Series:
    """How often a thing was said, and what of it is stored."""

    first: float
    last: float
    count: int = 1
    next_write: float = 0.0
    waiting: bool = True
    stored: Object | None = None


class EventRecorder:
    """Records events; `run` writes them and belongs in the owner's TaskGroup."""

    def __init__(self, api: KubeApi, *, clock: Clock, component: str, instance: str) -> None:
        """`component` and `instance` say who speaks: the driver's name and the node's."""
        self._api = api
        self._clock = clock
        self._component = component
        self._instance = instance
        self._known: OrderedDict[_Saying, _Series] = OrderedDict()
        self._per_object: Counter[str] = Counter()
        self._queue: asyncio.Queue[_Saying] = asyncio.Queue(maxsize=WAITING)

    def record(self, about: Reference, *, severity: Severity, reason: str, message: str) -> None:
        """Say something about an object. Returns at once."""
        saying = _Saying(about=about, severity=severity, reason=reason, message=message[:MESSAGE_CHARACTERS])
        now = self._clock.wall()
        series = self._known.get(saying)
        if series is None:
            self._begin(saying, now)
            return
        self._known.move_to_end(saying)
        series.count += 1
        series.last = now
        if not series.waiting and now >= series.next_write:
            series.waiting = self._enqueue(saying)

    async def run(self) -> None:
        """Write what was recorded, until cancelled."""
        while True:
            saying = await self._queue.get()
            series = self._known.get(saying)
            if series is None:
                continue
            try:
                await self._write(saying, series)
            except GpuDraError as error:
                log.warning(
                    "event could not be written", extra={"reason": saying.reason, "about": saying.about.name, "error": str(error)}
                )
            series.waiting = False
            series.next_write = self._clock.wall() + REPEAT_SECONDS
            await self._clock.sleep(SECONDS_PER_WRITE)

    def _begin(self, saying: _Saying, now: float) -> None:
        while self._known and next(iter(self._known.values())).last <= now - FORGOTTEN_SECONDS:
            self._forget_oldest()
        if self._per_object[saying.about.uid] >= DIFFERENT_PER_OBJECT:
            log.info("too many different events, one dropped", extra={"reason": saying.reason, "about": saying.about.name})
            return
        if self._enqueue(saying):
            self._known[saying] = _Series(first=now, last=now)
            self._per_object[saying.about.uid] += 1
        if len(self._known) > REMEMBERED:
            self._forget_oldest()

    def _forget_oldest(self) -> None:
        forgotten, _ = self._known.popitem(last=False)
        self._per_object -= Counter({forgotten.about.uid: 1})

    def _enqueue(self, saying: _Saying) -> bool:
        try:
            self._queue.put_nowait(saying)
        except asyncio.QueueFull:
            log.info("too many events are waiting, one dropped", extra={"reason": saying.reason, "about": saying.about.name})
            return False
        return True

    async def _write(self, saying: _Saying, series: _Series) -> None:
        namespace = saying.about.namespace or "default"
        if series.stored is not None:
            again = series.stored | {"count": series.count, "lastTimestamp": _timestamp(series.last)}
            try:
                series.stored = await self._api.update(EVENTS, again, namespace=namespace)
            except NotFound:  # events live for an hour (kube-apiserver --event-ttl)
                series.stored = None
        if series.stored is None:
            series.stored = await self._api.create(EVENTS, self._event(saying, series, namespace), namespace=namespace)

    def _event(self, saying: _Saying, series: _Series, namespace: str) -> Object:
        about = saying.about
        involved = {"apiVersion": about.api_version, "kind": about.kind, "name": about.name, "uid": about.uid}
        if about.namespace is not None:
            involved["namespace"] = about.namespace
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"{about.name[:230]}.{secrets.token_hex(8)}", "namespace": namespace},
            "involvedObject": involved,
            "type": str(saying.severity),
            "reason": saying.reason,
            "message": saying.message,
            "source": {"component": self._component, "host": self._instance},
            "reportingComponent": self._component,
            "reportingInstance": self._instance,
            "firstTimestamp": _timestamp(series.first),
            "lastTimestamp": _timestamp(series.last),
            "count": series.count,
        }


def _timestamp(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
