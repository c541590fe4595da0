"""Bring what this node holds in line with the API, by UID, at start and then periodically.

The kubelet does not always unprepare: it forgets pods that were force-deleted while this plugin was down. So every record is looked up. A
claim is taken back only when the API says that it is gone or moved (an API error says nothing), has said so for the whole grace, and no
container uses its devices. The grace is counted in memory: a restart of the plugin prolongs it, which is the safe side.

What lost its record (a crash, a damaged file, a wiped directory) is explained from the API's list of claims and prepared again; a prepare
that a dead process left half done is finished the same way.
"""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING, Any

from gpu_dra.claims.manager import CLAIM_LOCK_PREFIX
from gpu_dra.claims.standing import Standing, reference, standing_of
from gpu_dra.core.errors import GpuDraError
from gpu_dra.kube.api import RESOURCE_CLAIMS
from gpu_dra.kube.errors import NotFound

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from gpu_dra.claims.journal import Journal, JournalScan
    from gpu_dra.claims.manager import ClaimManager, ClaimSettings
    from gpu_dra.claims.ports import ClaimsObserver, DeviceUsers, SpecStore
    from gpu_dra.claims.threads import Threads
    from gpu_dra.core.clock import Clock
    from gpu_dra.core.locks import LockDirectory
    from gpu_dra.kube.api import KubeApi, Object
    from gpu_dra.model.prepared import PreparedClaim

log = logging.getLogger(__name__)


class Reconciler:
    """One node's claims against the API."""

    def __init__(
        self,
        *,
        settings: ClaimSettings,
        manager: ClaimManager,
        journal: Journal,
        specs: SpecStore,
        locks: LockDirectory,
        threads: Threads,
        api: KubeApi,
        users: DeviceUsers,
        observer: ClaimsObserver,
        clock: Clock,
        boot_id: str,
    ) -> None:
        self._settings = settings
        self._manager = manager
        self._journal = journal
        self._specs = specs
        self._locks = locks
        self._threads = threads
        self._api = api
        self._users = users
        self._observer = observer
        self._clock = clock
        self._boot_id = boot_id
        self._gone_since: dict[str, float] = {}

    async def run(self) -> None:
        """Reconcile now and every interval, for ever. What fails is reported and tried again in the next round."""
        while True:
            try:
                await self.run_once()
            except GpuDraError as error:
                log.warning("claims not reconciled", extra={"error": str(error)})
            await self._clock.sleep(self._settings.reconcile_interval)

    async def run_once(self) -> None:
        """One round over everything that is held. Raises GpuDraError when the node's own state cannot be read."""
        survey = await self._manager.survey()
        held = {**survey.scan.entries, **survey.unexplained}
        self._gone_since = {uid: since for uid, since in self._gone_since.items() if uid in held}
        for entry in survey.scan.entries.values():
            await self._compare(entry)
        if survey.unexplained:
            await self._explain(survey.unexplained)
        self._observer.recorded(await self._manager.recorded())
        await self._threads.run(self._tidy, survey.scan)

    def _tidy(self, scan: JournalScan) -> None:
        """Clear away what no claim's prepare or unprepare will touch again; what cannot be cleared is told and stays. Blocking."""
        for name in scan.strangers:
            with _told(name):
                moved_to = self._journal.set_aside_stranger(name)
                log.warning("file that is no claim's set aside", extra={"file": name, "moved_to": str(moved_to)})
        for directory in (self._journal, self._specs):
            for name, uid in directory.leftovers().items():
                with _told(name), self._locks.trying(f"{CLAIM_LOCK_PREFIX}{uid}") as held:
                    if held:  # nobody is writing it
                        directory.remove_leftover(name)
        with _told("locks"):
            self._locks.sweep(CLAIM_LOCK_PREFIX)

    async def _compare(self, entry: PreparedClaim) -> None:
        try:
            found = await self._api.get(RESOURCE_CLAIMS, entry.ref.name, namespace=entry.ref.namespace)
        except NotFound:
            found = None
        except GpuDraError as error:
            log.info("claim not compared, the API does not answer", extra={"claim": str(entry.ref), "error": str(error)})
            return
        await self._settle(entry, found)

    async def _explain(self, unexplained: Mapping[str, PreparedClaim]) -> None:
        """Only the UID of these is known, so they are looked for among all claims."""
        try:
            listed = await self._api.list(RESOURCE_CLAIMS)
        except GpuDraError as error:
            log.warning("claims without a record not explained", extra={"uids": sorted(unexplained), "error": str(error)})
            return
        by_uid: dict[str, Object] = {claim["metadata"]["uid"]: claim for claim in listed.items}
        for uid, entry in unexplained.items():
            await self._settle(entry, by_uid.get(uid))

    async def _settle(self, entry: PreparedClaim, found: Mapping[str, Any] | None) -> None:
        standing = standing_of(found, entry, driver=self._settings.driver, pool=self._settings.pool)
        if self._manager.is_busy(entry.ref.uid):
            return
        try:
            if standing is not Standing.OURS:
                await self._take_back(entry, standing)
            else:
                self._gone_since.pop(entry.ref.uid, None)
                if (
                    found is not None
                ):  # checks what is prepared, restores what was lost under a running pod, finishes what was begun
                    await self._manager.repair(reference(found))
        except GpuDraError as error:
            log.warning("claim not reconciled", extra={"claim": str(entry.ref), "standing": standing, "error": str(error)})

    async def _take_back(self, entry: PreparedClaim, standing: Standing) -> None:
        since = self._gone_since.setdefault(entry.ref.uid, self._clock.monotonic())
        may_run = entry.boot_id in ("", self._boot_id)  # no container has lived through a reboot
        if may_run and self._clock.monotonic() - since < self._settings.grace:
            return
        user = await self._threads.run(self._users.in_use, entry)
        if user is not None:
            log.warning("devices of a claim that is gone are still used", extra={"claim": str(entry.ref), "user": user})
            return
        log.warning("taking back a claim that nobody unprepared", extra={"claim": str(entry.ref), "standing": standing})
        await self._manager.unprepare(entry.ref)
        self._gone_since.pop(entry.ref.uid, None)


@contextlib.contextmanager
def _told(what: str) -> Iterator[None]:
    """One thing that cannot be tidied must not keep the others."""
    try:
        yield
    except GpuDraError as error:
        log.warning("cannot be cleared away", extra={"what": what, "error": str(error)})
