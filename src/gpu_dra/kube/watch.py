"""Follow objects for ever: list, watch from there, list again when the server has forgotten where we were.

Three nested lifetimes, one generator each: a watch request; a lineage, which is one list and the watch requests that go on from it
until 410; and `follow`, which starts lineages and remembers what it has told, so that after a new list also deletions are noticed.
Source: Kubernetes API concepts, "Efficient detection of changes" and "Watch bookmarks". A resourceVersion is opaque: it is compared
for equality only.
"""

from __future__ import annotations

import contextlib
import logging
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from gpu_dra.core.backoff import Backoff
from gpu_dra.core.errors import NotReady
from gpu_dra.kube.api import WatchKind
from gpu_dra.kube.errors import Gone, TooManyRequests, Unavailable
from gpu_dra.kube.waiting import within

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence

    from gpu_dra.core.clock import Clock
    from gpu_dra.kube.api import KubeApi, Object, ObjectList, Resource, WatchEvent

log = logging.getLogger(__name__)

REQUEST_SECONDS = (240, 300)
"""How long a watch request lasts, drawn anew each time, so that a thousand nodes do not come back together."""

SILENCE_SECONDS = 150.0
"""A request without an event or bookmark for this long is given up: bookmarks come about once a minute (apiserver cacher), so two are
missing. Where a server sends none, this only starts the request anew from the same place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which objects are followed; no namespace means all."""

    resource: Resource
    namespace: str | None = None
    fields: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    """An object appeared or is different from when it was last told."""

    object: Object


@dataclass(frozen=True, slots=True, kw_only=True)
class Deleted:
    """An object is gone; its last known state."""

    object: Object


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """Everything was listed, and every difference has been told: what is known is now complete."""

    objects: tuple[Object, ...]


Change: TypeAlias = Changed | Deleted | Listed

_Known: TypeAlias = dict[tuple[str, str], "Object"]


async def follow(
    api: KubeApi, selection: Selection, *, clock: Clock, randomness: random.Random | None = None
) -> AsyncGenerator[Change, None]:
    """Changes to the selected objects, for ever; a `Listed` after each list. Leave it through `contextlib.aclosing`.

    Outages are waited out with back-off. Raises Refused where waiting does not help: a missing right, an API that is not served.
    """
    pace = _Pace(clock=clock, random=randomness or random.Random())
    known: _Known = {}
    while True:
        try:
            async with contextlib.aclosing(_lineage(api, selection, known, pace)) as changes:
                async for change in changes:
                    yield change
        except Gone as error:
            log.info("watch fell behind, listing again", extra={"resource": selection.resource.plural, "error": str(error)})
            await pace.wait(error)
        except NotReady as error:
            log.warning("list failed, trying again", extra={"resource": selection.resource.plural, "error": str(error)})
            await pace.wait(error)


class _Pace:
    """How long to wait before asking the server again; an event that arrives makes it eager again."""

    def __init__(self, *, clock: Clock, random: random.Random) -> None:
        self.clock = clock
        self.random = random
        self._backoff = Backoff(random=random)

    def went_well(self) -> None:
        self._backoff.reset()

    async def wait(self, error: NotReady | None = None) -> None:
        asked = error.retry_after if isinstance(error, TooManyRequests) else 0.0
        await self.clock.sleep(max(self._backoff.next(), asked))


async def _lineage(api: KubeApi, selection: Selection, known: _Known, pace: _Pace) -> AsyncGenerator[Change, None]:
    """One list, then watch requests from its resourceVersion on. Raises Gone at the end of the line."""
    listed = await _list(api, selection)
    for difference in _differences(known, listed.items):
        yield difference
    yield Listed(objects=listed.items)
    version = listed.resource_version
    while True:
        heard = False
        try:
            async with contextlib.aclosing(_request(api, selection, version, pace)) as events:
                async for event in events:
                    heard = True
                    pace.went_well()
                    version = event.object["metadata"]["resourceVersion"]
                    if event.kind is not WatchKind.BOOKMARK:
                        yield _remember(known, event)
        except Gone:
            raise
        except NotReady as error:
            log.warning("watch broke off, going on", extra={"resource": selection.resource.plural, "error": str(error)})
            await pace.wait(error)
        else:
            if not heard:
                await pace.wait()


async def _list(api: KubeApi, selection: Selection) -> ObjectList:
    return await api.list(
        selection.resource, namespace=selection.namespace, field_selector=selection.fields, label_selector=selection.labels
    )


async def _request(api: KubeApi, selection: Selection, version: str, pace: _Pace) -> AsyncGenerator[WatchEvent, None]:
    """One watch request, until the server ends it. Raises Unavailable when it falls silent."""
    stream = api.watch(
        selection.resource,
        resource_version=version,
        namespace=selection.namespace,
        field_selector=selection.fields,
        label_selector=selection.labels,
        timeout_seconds=pace.random.randint(*REQUEST_SECONDS),
    )
    async with contextlib.aclosing(stream):
        while True:
            try:
                event = await within(SILENCE_SECONDS, _next(stream), clock=pace.clock)
            except TimeoutError as error:
                raise Unavailable(
                    f"watch {selection.resource.plural}: no event and no bookmark for {SILENCE_SECONDS:g} s"
                ) from error
            if event is None:
                return
            yield event


async def _next(stream: AsyncGenerator[WatchEvent, None]) -> WatchEvent | None:
    return await anext(stream, None)


def _remember(known: _Known, event: WatchEvent) -> Change:
    if event.kind is WatchKind.DELETED:
        known.pop(_key(event.object), None)
        return Deleted(object=event.object)
    known[_key(event.object)] = event.object
    return Changed(object=event.object)


def _differences(known: _Known, listed: Sequence[Object]) -> Iterator[Change]:
    """What a list tells that was not told before; `known` is brought up to date on the way.

    An object that was deleted and made again under its name is both: deleted, then changed.
    """
    uids = {item["metadata"]["uid"] for item in listed}
    for key, before in list(known.items()):
        if before["metadata"]["uid"] not in uids:
            del known[key]
            yield Deleted(object=before)
    for item in listed:
        earlier = known.get(_key(item))
        if earlier is None or earlier["metadata"]["resourceVersion"] != item["metadata"]["resourceVersion"]:
            known[_key(item)] = item
            yield Changed(object=item)


def _key(item: Object) -> tuple[str, str]:
    return item["metadata"].get("namespace", ""), item["metadata"]["name"]
