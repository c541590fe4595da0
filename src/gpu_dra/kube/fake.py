"""`KubeApi` in memory: what `http.HttpKubeApi` is against a real server, without one.

Shipped: unit tests, component tests (through `kube.fake_server`) and trials run on it, and it passes the same contract tests. It adds
to `fake_store.FakeStore` what belongs to a connection: latency, failures, outages, watch requests with bookmarks, a record of calls.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing, contextmanager
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from gpu_dra.core.errors import GpuDraError
from gpu_dra.kube.api import ObjectList, ServerVersion, WatchEvent, WatchKind
from gpu_dra.kube.errors import Unavailable
from gpu_dra.kube.fake_faults import Fault, Faults
from gpu_dra.kube.fake_kinds import api_version, kind_of
from gpu_dra.kube.fake_store import Change, FakeStore, as_event, matcher
from gpu_dra.kube.rest import VERSION, Call, Verb
from gpu_dra.kube.waiting import within

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterator, Mapping

    from gpu_dra.core.clock import Clock
    from gpu_dra.kube.api import Object, Resource

T = TypeVar("T")

BOOKMARK_SECONDS = 60.0
"""About how often kube-apiserver sends bookmarks (apiserver `storage/cacher`, bookmarkFrequency)."""

_HANG = None
_Message: TypeAlias = Change | GpuDraError | None
"""What a running watch is given: a change, an error to end with, or `_HANG`."""

WRITES = frozenset({Verb.CREATE, Verb.UPDATE, Verb.DELETE})


class FakeKubeApi:
    """An API server in this process. `store` is its content, to be changed directly by a test that plays somebody else."""

    def __init__(self, *, clock: Clock, version: ServerVersion | None = None) -> None:
        self.store = FakeStore(clock=clock)
        self.calls: list[Call] = []
        """Every call made, in order, failed ones included."""
        self.version = version or ServerVersion(major=1, minor=37)
        self._clock = clock
        self._faults = Faults(clock=clock)
        self._watchers: set[asyncio.Queue[_Message]] = set()

    @property
    def writes(self) -> list[Call]:
        """The calls that ask for a change."""
        return [call for call in self.calls if call.verb in WRITES]

    def fail(
        self,
        error: GpuDraError,
        *,
        verb: Verb | None = None,
        resource: Resource | None = None,
        name: str | None = None,
        times: int | None = 1,
        answer_lost: bool = False,
    ) -> None:
        """Answer the next `times` matching calls (None: all) with `error`; with `answer_lost` after having carried them out."""
        self._faults.add(Fault(verb=verb, resource=resource, name=name, times=times, error=error, answer_lost=answer_lost))

    def delay(
        self,
        seconds: float,
        *,
        verb: Verb | None = None,
        resource: Resource | None = None,
        name: str | None = None,
        times: int | None = None,
    ) -> None:
        """Let matching calls take this long."""
        self._faults.add(Fault(verb=verb, resource=resource, name=name, times=times, delay=seconds))

    @contextmanager
    def outage(self) -> Iterator[None]:
        """The server is away while the context lasts: calls fail, running watches break off."""
        self._faults.outage = True
        self.break_watches(Unavailable("the API server went away"))
        try:
            yield
        finally:
            self._faults.outage = False

    def break_watches(self, error: GpuDraError) -> None:
        """End every running watch with `error`; Gone is what a server sends whose history no longer reaches back."""
        for queue in self._watchers:
            queue.put_nowait(error)

    def hang_watches(self) -> None:
        """Let every running watch stay open and say nothing any more, as over a connection that died unnoticed."""
        for queue in self._watchers:
            queue.put_nowait(_HANG)

    async def server_version(self) -> ServerVersion:
        """The version given at construction."""
        return await self._carry_out(Call(verb=Verb.GET, resource=VERSION), lambda: self.version)

    async def get(self, resource: Resource, name: str, *, namespace: str | None = None) -> Object:
        """One object."""
        call = Call(verb=Verb.GET, resource=resource, namespace=namespace, name=name)
        return await self._carry_out(call, lambda: self.store.get(resource, name, namespace=namespace))

    async def list(
        self,
        resource: Resource,
        *,
        namespace: str | None = None,
        field_selector: Mapping[str, str] | None = None,
        label_selector: Mapping[str, str] | None = None,
    ) -> ObjectList:
        """All objects that match."""
        call = Call(verb=Verb.LIST, resource=resource, namespace=namespace)
        return await self._carry_out(
            call,
            lambda: ObjectList(
                items=self.store.list(resource, namespace=namespace, field_selector=field_selector, label_selector=label_selector),
                resource_version=self.store.version,
            ),
        )

    async def watch(
        self,
        resource: Resource,
        *,
        resource_version: str,
        namespace: str | None = None,
        field_selector: Mapping[str, str] | None = None,
        label_selector: Mapping[str, str] | None = None,
        timeout_seconds: int = 270,
    ) -> AsyncGenerator[WatchEvent, None]:
        """Changes after `resource_version`, with a bookmark every minute and at the end."""
        call = Call(verb=Verb.WATCH, resource=resource, namespace=namespace)
        matches = matcher(resource, namespace, field_selector, label_selector)
        history = await self._carry_out(call, lambda: self.store.changes_after(resource_version))
        queue: asyncio.Queue[_Message] = asyncio.Queue()
        for change in history:
            queue.put_nowait(change)
        stop_listening = self.store.listen(queue.put_nowait)
        self._watchers.add(queue)
        try:
            async with aclosing(self._changes(queue, timeout_seconds)) as changes:
                async for found in changes:
                    if found is None:
                        yield self._bookmark(resource)
                    elif found.resource == resource and (event := as_event(found, matches)) is not None:
                        yield event
        finally:
            stop_listening()
            self._watchers.discard(queue)

    async def create(self, resource: Resource, body: Object, *, namespace: str | None = None) -> Object:
        """The stored object."""
        call = Call(verb=Verb.CREATE, resource=resource, namespace=namespace)
        return await self._carry_out(call, lambda: self.store.create(resource, body, namespace=namespace))

    async def update(self, resource: Resource, body: Object, *, namespace: str | None = None) -> Object:
        """The stored object."""
        call = Call(verb=Verb.UPDATE, resource=resource, namespace=namespace, name=body["metadata"]["name"])
        return await self._carry_out(call, lambda: self.store.update(resource, body, namespace=namespace))

    async def update_status(self, resource: Resource, body: Object, *, namespace: str | None = None) -> Object:
        """The stored object."""
        name = body["metadata"]["name"]
        call = Call(verb=Verb.UPDATE, resource=resource, namespace=namespace, name=name, subresource="status")
        return await self._carry_out(call, lambda: self.store.update_status(resource, body, namespace=namespace))

    async def delete(
        self,
        resource: Resource,
        name: str,
        *,
        namespace: str | None = None,
        uid: str | None = None,
        resource_version: str | None = None,
    ) -> None:
        """Delete, with preconditions when given."""
        call = Call(verb=Verb.DELETE, resource=resource, namespace=namespace, name=name)
        await self._carry_out(
            call, lambda: self.store.delete(resource, name, namespace=namespace, uid=uid, resource_version=resource_version)
        )

    async def close(self) -> None:
        """End the running watches."""
        self.break_watches(Unavailable("the client was closed"))

    async def _carry_out(self, call: Call, work: Callable[[], T]) -> T:
        self.calls.append(call)
        _ = call.path  # raises ValueError where the namespace is missing, as the client over HTTP does
        answer_lost = await self._faults.before(call)
        result = work()
        if answer_lost is not None:
            raise answer_lost
        return result

    async def _changes(self, queue: asyncio.Queue[_Message], seconds: float) -> AsyncGenerator[Change | None, None]:
        """Changes as they come, None where a bookmark is due, until the request's time is over."""
        end = self._clock.monotonic() + seconds
        bookmark = self._clock.monotonic() + BOOKMARK_SECONDS
        while not queue.empty() or self._clock.monotonic() < end:
            try:
                message = await self._message(queue, until=min(end, bookmark))
            except TimeoutError:
                bookmark = self._clock.monotonic() + BOOKMARK_SECONDS
                yield None
                continue
            if isinstance(message, Exception):
                raise message
            if message is _HANG:
                await asyncio.Event().wait()
            yield message

    async def _message(self, queue: asyncio.Queue[_Message], *, until: float) -> _Message:
        if not queue.empty():
            return queue.get_nowait()
        return await within(until - self._clock.monotonic(), queue.get(), clock=self._clock)

    def _bookmark(self, resource: Resource) -> WatchEvent:
        where = {"metadata": {"resourceVersion": self.store.version}}
        type_meta = {"apiVersion": api_version(resource), "kind": kind_of(resource).name}
        return WatchEvent(kind=WatchKind.BOOKMARK, object=type_meta | where)
