"""Prepare and unprepare one claim: locks, the one API read, deadlines, and what goes to the worker threads.

A recorded UID is answered without asking the API, after everything on the node was checked. Order of calls of one claim is the order in
which its lock is taken, so an unprepare that comes while a prepare still works runs after it and takes it back. No tombstone is needed: a
prepare whose caller has gone is cancelled with the call unless it is already at work under the lock, and one that starts after the
unprepare reads the API again, where a deleted claim is gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gpu_dra.cdi.naming import check_uid
from gpu_dra.claims.host_work import Unexplained
from gpu_dra.claims.plan import plan_repair
from gpu_dra.claims.read import read_claim
from gpu_dra.claims.recover import recover_allocation, recover_claim
from gpu_dra.claims.report import Operation, Report, Step
from gpu_dra.claims.standing import reference
from gpu_dra.core.errors import GpuDraError, NotReady, Refused
from gpu_dra.kube.api import RESOURCE_CLAIMS
from gpu_dra.kube.errors import NotFound, TooManyRequests, Unauthorized, Unavailable
from gpu_dra.model.prepared import Phase

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping

    from gpu_dra.claims.host_work import Finding, HostWork, Survey
    from gpu_dra.claims.ports import ClaimsObserver, Inventories
    from gpu_dra.claims.threads import Threads
    from gpu_dra.core.locks import LockDirectory
    from gpu_dra.kube.api import KubeApi
    from gpu_dra.model.claim import AllocatedClaim, ClaimRef
    from gpu_dra.model.inventory import Inventory
    from gpu_dra.model.prepared import PreparedClaim

CLAIM_LOCK_PREFIX: Final = "claim-"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimSettings:
    """Who we are, and how long things may take, in seconds."""

    driver: str
    pool: str
    deadline: float = 40.0
    """For a whole prepare or unprepare; the kubelet gives up after 45 (kubelet `pkg/kubelet/cm/dra/plugin`)."""
    grace: float = 600.0
    """For which the API has to say that a claim is gone before it is taken back."""
    reconcile_interval: float = 300.0
    """Between two comparisons of everything with the API."""


class ClaimManager:
    """Prepares and unprepares claims, one call a claim. Calls on different devices do not wait for each other."""

    def __init__(
        self,
        *,
        settings: ClaimSettings,
        work: HostWork,
        locks: LockDirectory,
        threads: Threads,
        api: KubeApi,
        inventories: Inventories,
        observer: ClaimsObserver,
    ) -> None:
        self._settings = settings
        self._work = work
        self._locks = locks
        self._api = api
        self._inventories = inventories
        self._observer = observer
        self._threads = threads
        self._explained: Mapping[str, PreparedClaim] = {}
        self._recorded_at = 0.0

    async def prepare(self, ref: ClaimRef) -> PreparedClaim:
        """What the kubelet gets for this claim; the same again for a claim that is prepared already. Raises GpuDraError."""
        async with self._operation(Operation.PREPARE, ref) as report:
            return await self._make_whole(ref, report)

    async def repair(self, ref: ClaimRef) -> None:
        """Check a claim that is held here and make it whole; nothing when it was unprepared meanwhile. Raises GpuDraError."""
        async with self._operation(Operation.REPAIR, ref) as report:
            if await self._threads.run(self._work.holds, ref.uid):
                await self._make_whole(ref, report)

    async def unprepare(self, ref: ClaimRef) -> None:
        """Take back what was done for this claim; success when that is nothing. Needs no API. Raises GpuDraError."""
        async with self._operation(Operation.UNPREPARE, ref) as report:
            with report.timed(Step.LOOK_UP):
                finding = await self._threads.run(self._work.recorded, ref.uid)
            if finding.damage is not None:
                self._observer.set_aside(finding.damage)
            entry = finding.entry
            async with self._devices(entry.device_names if entry else (), report):
                await self._threads.run(self._work.undo, ref.uid, entry, report)

    async def survey(self) -> Survey:
        """Every claim that is held here. Raises GpuDraError."""
        return await self._threads.run(self._work.survey, self._inventories.current)

    async def recorded(self) -> Mapping[str, PreparedClaim]:
        """The recorded claims by UID. Raises GpuDraError."""
        return (await self.survey()).scan.entries

    def is_busy(self, uid: str) -> bool:
        """True while a living process, this one or one that overlaps with it, works on the claim."""
        return self._locks.is_held_elsewhere(f"{CLAIM_LOCK_PREFIX}{uid}")

    def close(self) -> None:
        """Give the threads back."""
        self._threads.close()

    async def _look_up(self, ref: ClaimRef, report: Report) -> Finding:
        with report.timed(Step.LOOK_UP):
            finding = await self._threads.run(self._work.look_up, ref.uid, self._inventories.current)
        if finding.damage is not None:
            self._observer.set_aside(finding.damage)
        return finding

    async def _make_whole(self, ref: ClaimRef, report: Report) -> PreparedClaim:
        finding = await self._look_up(ref, report)
        entry = finding.entry
        if entry is not None and finding.flaw is None:
            return entry
        if entry is None or entry.phase is not Phase.DONE:
            return await self._prepare(ref, entry, report)
        try:
            claim = await self._read(ref, report)
        except (Unavailable, Unauthorized, TooManyRequests):  # the record is then the best there is
            return await self._restore(entry, report)
        if {result.device for result in claim.results} == entry.device_names:
            return await self._restore(entry, report)
        return await self._prepare(ref, entry, report)

    async def _restore(self, entry: PreparedClaim, report: Report) -> PreparedClaim:
        inventory = await self._inventory_with(entry.device_names, report)
        plan = plan_repair(entry, inventory)
        async with self._devices(entry.device_names, report):
            return await self._threads.run(self._work.restore, entry, plan, report)

    async def _prepare(self, ref: ClaimRef, unfinished: PreparedClaim | None, report: Report) -> PreparedClaim:
        claim = await self._read(ref, report)
        devices = {result.device for result in claim.results}
        inventory = await self._inventory_with(devices, report)
        async with self._devices(devices.union(unfinished.device_names if unfinished else ()), report):
            try:
                return await self._threads.run(self._work.prepare, claim, inventory, unfinished, self._explained, report)
            except Unexplained as error:
                self._explained = await self._explain(error, inventory)
                return await self._threads.run(self._work.prepare, claim, inventory, unfinished, self._explained, report)

    async def _explain(self, unknown: Unexplained, inventory: Inventory) -> dict[str, PreparedClaim]:
        """What claims hold of which nothing on the node tells it. One the API no longer has holds nothing: nobody may use it."""
        try:
            listed = await self._api.list(RESOURCE_CLAIMS)
        except GpuDraError as error:
            raise NotReady(f"{unknown}, and the API cannot tell what they hold: {error}") from error
        explained = {uid: recover_claim(uid, None, inventory) for uid in unknown.uids | self._explained.keys()}
        for found in listed.items:
            ref = reference(found)
            if ref.uid in explained:
                with contextlib.suppress(NotReady, Refused):  # no longer allocated here
                    claim = read_claim(found, ref, driver=self._settings.driver, pool=self._settings.pool)
                    explained[ref.uid] = recover_allocation(claim, inventory)
        return explained

    async def _read(self, ref: ClaimRef, report: Report) -> AllocatedClaim:
        with report.timed(Step.GET_CLAIM):
            try:
                found = await self._api.get(RESOURCE_CLAIMS, ref.name, namespace=ref.namespace)
            except NotFound as error:
                raise NotFound(f"claim {ref} is not in the API any more; delete the pod that refers to it") from error
        return read_claim(found, ref, driver=self._settings.driver, pool=self._settings.pool)

    async def _inventory_with(self, devices: Iterable[str], report: Report) -> Inventory:
        """The inventory; looked at anew when a device is missing in the one at hand."""
        inventory = self._inventories.current
        if all(inventory.find(device) for device in devices):
            return inventory
        with report.timed(Step.REFRESH):
            return await self._inventories.refresh()

    @property
    def _lock_wait(self) -> float:
        """Less than the whole, so that the answer names the lock that was not free and leaves time for the work."""
        return self._settings.deadline * 0.75

    @contextlib.asynccontextmanager
    async def _devices(self, names: Iterable[str], report: Report) -> AsyncIterator[None]:
        async with contextlib.AsyncExitStack() as stack:
            with report.timed(Step.LOCK):
                locks = self._locks.hold((f"device-{name}" for name in names), within=self._lock_wait)
                await stack.enter_async_context(locks)
            yield

    @contextlib.asynccontextmanager
    async def _operation(self, operation: Operation, ref: ClaimRef) -> AsyncIterator[Report]:
        """One call: the claim's lock, the deadline, and a report of it to the observer whatever comes of it."""
        report = Report(operation=operation)
        started = time.perf_counter()
        try:
            check_uid(ref.uid)
            async with asyncio.timeout(self._settings.deadline) as deadline, contextlib.AsyncExitStack() as stack:
                with report.timed(Step.LOCK):
                    names = [f"{CLAIM_LOCK_PREFIX}{ref.uid}"]
                    await stack.enter_async_context(self._locks.hold(names, within=self._lock_wait, temporary=True))
                yield report
        except TimeoutError as error:
            report.error = NotReady.__name__
            if not deadline.expired():
                raise
            raise NotReady(f"{operation} of claim {ref} did not end within {self._settings.deadline:g} s; retrying") from error
        except BaseException as error:
            report.error = type(error).__name__
            raise
        finally:
            report.seconds = time.perf_counter() - started
            self._observer.finished(report)
            if report.recorded is not None and report.recorded_at >= self._recorded_at:
                self._recorded_at = report.recorded_at
                self._observer.recorded(report.recorded)
