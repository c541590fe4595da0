"""Keep the stored slices of this node equal to the pool that was published last.

One loop follows what is stored and wakes the other, which converges: plan, write, and again until nothing is left to write. So a slice
that somebody deletes or edits is repaired at once. `plan` decides what is written, this module when:
- only while it holds the node's publisher lock, since two plugin processes overlap in a rolling update;
- at most one change per 2 s (burst 5), and none when nothing changed;
- after a failure with back-off and jitter, from a fresh list; nothing is withdrawn meanwhile;
- what the server refused only after five minutes: an object that is invalid stays so, but an admission policy also answers Invalid.
Slices are left as they are when it stops: the kubelet removes them if no other plugin takes over.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from typing import TYPE_CHECKING

from gpu_dra.core.backoff import Backoff
from gpu_dra.core.errors import GpuDraError, NotReady
from gpu_dra.kube.api import NODES, RESOURCE_SLICES
from gpu_dra.kube.errors import Invalid, NotFound, TooManyRequests
from gpu_dra.kube.watch import Changed, Deleted, Listed, Selection, follow
from gpu_dra.slices.acceptance import Acceptance
from gpu_dra.slices.plan import Create, Delete, NodeOwner, Update, plan_writes
from gpu_dra.slices.rate import ChangeBudget
from gpu_dra.slices.view import StoredSlices

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from gpu_dra.core.clock import Clock
    from gpu_dra.core.locks import LockDirectory
    from gpu_dra.kube.api import KubeApi, Object
    from gpu_dra.kube.watch import Change
    from gpu_dra.slices.observer import PublisherObserver
    from gpu_dra.slices.plan import Write
    from gpu_dra.slices.pool import DesiredPool

log = logging.getLogger(__name__)

PUBLISHER_LOCK = "publisher"
REFUSAL_HOLDS = 300.0
"""Seconds for which a refused pool is not sent again."""
_LOCK_POLL = 1.0
"""Seconds between two tries to become the publisher; the other process is gone before the kubelet's 30 s of patience end."""


class SlicePublisher:
    """The slices of one driver on one node. `publish` and `resync` may be called at any time; `run` does the work."""

    def __init__(
        self, api: KubeApi, *, driver: str, node_name: str, clock: Clock, locks: LockDirectory, observer: PublisherObserver
    ) -> None:
        self._api = api
        self._node_name = node_name
        self._selection = Selection(resource=RESOURCE_SLICES, fields={"spec.nodeName": node_name, "spec.driver": driver})
        self._clock = clock
        self._locks = locks
        self._observer = observer
        self._desired: DesiredPool | None = None
        self._refused: DesiredPool | None = None
        self._acceptance = Acceptance()
        self._view = StoredSlices()
        self._owner: NodeOwner | None = None
        """None when the Node must be read, since its object may have been made anew."""
        self._budget = ChangeBudget(clock)
        self._wake = asyncio.Event()

    def publish(self, pool: DesiredPool) -> None:
        """From now on keep `pool` stored; replaces what was to be published before."""
        known = set() if self._desired is None else set(self._desired.dropped)
        for dropped in pool.dropped:
            if dropped not in known:
                log.warning(
                    "not published as found", extra={"device": dropped.device, "what": dropped.what, "reason": dropped.reason}
                )
        self._desired = pool
        self._wake.set()

    def resync(self) -> None:
        """Compare with the API server now, from a fresh list; for the moment after registration, when the kubelet has wiped slices."""
        self._view.doubtful = True
        self._owner = None
        self._refused = None
        self._wake.set()

    async def run(self) -> None:
        """Converge until cancelled; waits first while another process of this node publishes."""
        async with self._sole_publisher():
            self._view = StoredSlices()
            self._owner = None
            async with asyncio.TaskGroup() as group:
                group.create_task(self._converge_forever())
                group.create_task(self._follow_forever())
                group.create_task(self._doubt_refusals_forever())

    @contextlib.asynccontextmanager
    async def _sole_publisher(self) -> AsyncIterator[None]:
        waiting = False
        while (descriptor := self._locks.try_hold(PUBLISHER_LOCK)) is None:
            if not waiting:
                log.info("another process of this node publishes, standing by")
                self._observer.standing_by()
            waiting = True
            await self._clock.sleep(_LOCK_POLL)
        if waiting:
            self._observer.took_over()
        try:
            yield
        finally:
            os.close(descriptor)

    async def _converge_forever(self) -> None:
        backoff = Backoff()
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                await self._converge()
                backoff.reset()
            except GpuDraError as error:
                self._view.doubtful = True
                await self._pause(error, backoff, doing="publishing slices")
                self._wake.set()

    async def _converge(self) -> None:
        while self._view.listed and (wanted := self._desired) is not None and wanted != self._refused:
            if self._view.doubtful:
                stored = await self._api.list(RESOURCE_SLICES, field_selector=self._selection.fields)
                self._view.replace(stored.items)
            pool = self._acceptance.adapt(wanted)
            writes = plan_writes(pool, self._view.all(), owner=await self._node_owner())
            if not writes:
                self._observer.published(slices=len(pool.slices), devices=pool.device_count)
                return
            if wait := self._budget.seconds_to_wait():
                await self._clock.sleep(wait)
                continue  # what was published meanwhile becomes part of this change
            self._budget.spend()
            try:
                for write in writes:
                    await self._carry_out(write)
            except Invalid as error:
                self._refused = wanted
                self._view.doubtful = True
                log.error("the API server refused a slice", extra={"error": str(error)})  # noqa: TRY400 - says it all
                self._observer.refused(error)

    async def _doubt_refusals_forever(self) -> None:
        """Send what was refused again now and then; looks at the clock rarely, since a refusal is rare."""
        while True:
            refused = self._refused
            await self._clock.sleep(REFUSAL_HOLDS)
            if refused is not None and self._refused is refused:
                self.resync()

    async def _node_owner(self) -> NodeOwner:
        if self._owner is None:
            try:
                node = await self._api.get(NODES, self._node_name)
            except NotFound as error:
                raise NotReady(
                    f"Node {self._node_name} does not exist; slices are written once the kubelet registered it"
                ) from error
            self._owner = NodeOwner(name=self._node_name, uid=node["metadata"]["uid"])
        return self._owner

    async def _carry_out(self, write: Write) -> None:
        match write:
            case Delete(name=name, uid=uid, resource_version=version):
                with contextlib.suppress(NotFound):
                    await self._api.delete(RESOURCE_SLICES, name, uid=uid, resource_version=version)
                self._view.forget(name)
                self._wrote("delete", name)
            case Update(body=body):
                self._stored(body, await self._api.update(RESOURCE_SLICES, body), verb="update")
            case Create(body=body):
                self._stored(body, await self._api.create(RESOURCE_SLICES, body), verb="create")

    def _stored(self, sent: Object, stored: Object, *, verb: str) -> None:
        self._view.remember(stored)
        self._wrote(verb, stored["metadata"]["name"])
        dropped = self._acceptance.learn(sent["spec"]["devices"], stored["spec"].get("devices") or ())
        for loss in dropped:
            log.error("the API server did not keep a device as sent", extra={"device": loss.device, "reason": loss.reason})
        if dropped:
            self._observer.not_kept(dropped)

    def _wrote(self, verb: str, name: str) -> None:
        log.info("wrote slice", extra={"verb": verb, "slice": name})
        self._observer.wrote(verb)

    async def _follow_forever(self) -> None:
        backoff = Backoff()
        while True:
            try:
                listed = False
                async with contextlib.aclosing(follow(self._api, self._selection, clock=self._clock)) as changes:
                    async for change in changes:
                        if listed:
                            backoff.reset()  # a list that goes well is no success while the watch after it is refused
                        listed = listed or isinstance(change, Listed)
                        self._take_in(change)
            except GpuDraError as error:
                await self._pause(error, backoff, doing="watching slices")

    def _take_in(self, change: Change) -> None:
        match change:
            case Changed(object=slice_):
                self._view.changed(slice_)
            case Deleted(object=slice_):
                if self._view.deleted(slice_):
                    self._owner = None  # the garbage collector removes slices whose Node object is gone
            case Listed(objects=slices) if not self._view.listed:
                self._view.replace(slices)
            case Listed():
                # A write may have overtaken this list, so that what it tells is not the whole truth.
                self._view.doubtful = True
        self._wake.set()

    async def _pause(self, error: GpuDraError, backoff: Backoff, *, doing: str) -> None:
        seconds = max(backoff.next(), error.retry_after if isinstance(error, TooManyRequests) else 0.0)
        log.warning("trying again later", extra={"doing": doing, "error": str(error), "seconds": round(seconds, 1)})
        self._observer.failed(error, retry_in=seconds)
        await self._clock.sleep(seconds)
