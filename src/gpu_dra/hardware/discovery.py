"""Keep the node's inventory true: scan at start, notice a change within a second, heal whatever can heal.

A cheap fingerprint is taken every second and the whole node is scanned when it changes, and every half minute all the same. While the
driver cannot be asked the next try comes after at most ten seconds. A GPU whose call hangs is set aside until the call returns.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from gpu_dra.core.backoff import Backoff
from gpu_dra.core.errors import GpuDraError
from gpu_dra.hardware.session import NvmlSession
from gpu_dra.hardware.worker import CALL_DEADLINE, CallHung, NvmlWorker
from gpu_dra.model.inventory import DriverState, Inventory

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from gpu_dra.core.clock import Clock
    from gpu_dra.hardware.host import HostPaths
    from gpu_dra.hardware.nvml import Nvml
    from gpu_dra.hardware.session import Fingerprint

log = logging.getLogger(__name__)

POLL: Final = 1.0
"""Seconds between fingerprints."""
RESCAN: Final = 30.0
"""Seconds between scans that nothing asked for."""
_MOST_WAIT: Final = 10.0
_CLOSE_SECONDS: Final = 2.0
STALE: Final = 120.0
"""Age in seconds from which a snapshot says nothing any more; several scans were due and each may wait for a hung GPU."""
_NOT_YET = Inventory(state=DriverState.UNRESPONSIVE, reason="the first scan of this node's GPUs has not ended yet")


class Discovery:
    """The node's inventory, now and over time."""

    def __init__(
        self,
        nvml: Nvml,
        host: HostPaths,
        *,
        clock: Clock,
        deadline: float = CALL_DEADLINE,
        lent: Callable[[], bool] = lambda: False,
    ) -> None:
        """`lent`: somebody of this node needs NVML for himself now; the last snapshot stands meanwhile and the session is closed."""
        self._clock = clock
        self._worker = NvmlWorker(nvml, deadline=deadline)
        self._session = NvmlSession(host)
        self._lent = lent
        self._scanning = asyncio.Lock()
        self._scans_begun = 0
        self._last_whole_scan = 0
        self._current = _NOT_YET
        self._version = 0
        self._looked = clock.monotonic()
        self._changed = asyncio.Event()

    @property
    def current(self) -> Inventory:
        """The newest snapshot, from memory; before the first scan one that says so."""
        return self._current

    @property
    def age(self) -> float:
        """Seconds since the last look at the hardware ended."""
        return self._clock.monotonic() - self._looked

    async def changes(self) -> AsyncIterator[Inventory]:
        """The snapshot as soon as there is one, then each new one; a slow reader misses those between."""
        seen = 0
        while True:
            if seen == self._version:
                await self._changed.wait()
                continue
            seen = self._version
            yield self._current

    async def refresh(self) -> Inventory:
        """The inventory of a scan that began after this call; callers that come together share one."""
        begun = self._scans_begun
        async with self._scanning:
            if self._last_whole_scan <= begun and not self._is_lent():
                self._scans_begun = number = self._scans_begun + 1
                self._accept(await self._look())
                self._last_whole_scan = number
            return self._current

    async def run(self) -> None:
        """Keep the inventory true, for ever."""
        backoff = Backoff(first=POLL, most=_MOST_WAIT)
        while True:
            if self._is_lent():
                if not self._worker.hung():  # a library that is closed under a call is worse than one that is in somebody's way
                    await self._worker.run(self._session.close)
                self._looked = self._clock.monotonic()
                await self._clock.sleep(POLL)
                continue
            before = await self._fingerprint()  # before the scan, so that what changes while it runs is noticed after it
            inventory = await self.refresh()
            if inventory.state is DriverState.READY:
                backoff.reset()
                await self._until_changed(before)
            else:
                await self._clock.sleep(backoff.next())

    async def close(self) -> None:
        """Let go of NVML; `refresh` opens it again. An NVML that does not come to an end is left to the end of the process."""
        if not self._worker.hung():
            try:
                async with asyncio.timeout(_CLOSE_SECONDS):
                    await self._worker.run(self._session.close)
            except (TimeoutError, GpuDraError) as error:
                log.warning("NVML was not closed in order", extra={"error": str(error) or "it takes too long"})
        self._worker.close()

    async def _until_changed(self, before: tuple[frozenset[int | None], Fingerprint]) -> None:
        """Return when a scan is due: the fingerprint is no longer the one of `before`, or time is up."""
        due = self._clock.monotonic() + RESCAN
        while self._clock.monotonic() < due:
            await self._clock.sleep(POLL)
            if self._is_lent() or await self._fingerprint() != before:
                return

    def _is_lent(self) -> bool:
        """Only while there is a snapshot to stand by: a plugin that starts looks first."""
        return self._version > 0 and self._lent()

    async def _fingerprint(self) -> tuple[frozenset[int | None], Fingerprint]:
        """Facts that change when a scan would find something else; hung GPUs among them, so that their recovery is noticed."""
        hung = frozenset(self._worker.hung())
        if None in hung:
            return hung, ()
        skip = [index for index in hung if index is not None]
        try:
            return hung, await self._worker.run(lambda nvml: self._session.fingerprint(nvml, skip))
        except CallHung:
            return frozenset(self._worker.hung()), ()

    async def _look(self) -> Inventory:
        """Scan, without the GPUs that hang; each hang found on the way costs one deadline and one GPU."""
        while True:
            hung = self._worker.hung()
            if None in hung:
                return self._unresponsive(str(hung[None]))
            skip = {index: str(hang) for index, hang in hung.items() if index is not None}
            try:
                return await self._worker.run(lambda nvml, skip=skip: self._session.look(nvml, skip))  # type: ignore[misc]
            except CallHung as hang:
                log.error("NVML call hangs", extra={"error": str(hang)})  # noqa: TRY400 - the traceback says nothing more

    def _unresponsive(self, reason: str) -> Inventory:
        """What was there before stays, unhealthy: devices of a node that may come back are not withdrawn from under their claims."""
        gpus = tuple(replace(gpu, unhealthy=reason) for gpu in self._current.gpus)
        return replace(self._current, state=DriverState.UNRESPONSIVE, reason=reason, gpus=gpus)

    def _accept(self, inventory: Inventory) -> None:
        self._looked = self._clock.monotonic()
        before, self._current = self._current, inventory
        if self._version and before == inventory:
            return
        self._version += 1
        self._changed.set()
        self._changed = asyncio.Event()
        _report(before, inventory)


def _report(before: Inventory, now: Inventory) -> None:
    """Log what is new, once."""
    log.info(
        "inventory",
        extra={"state": now.state, "devices": sum(1 for _ in now.devices()), "driver_version": now.driver_version or "unknown"},
    )
    if now.reason and now.reason != before.reason:
        log.warning("driver not ready", extra={"state": now.state, "reason": now.reason})
    for fault in now.faults:
        if fault not in before.faults:
            log.error("GPU cannot be offered", extra={"gpu": fault.where, "reason": fault.reason})
    known = {gpu.uuid: gpu.unhealthy for gpu in before.gpus}
    for gpu in now.gpus:
        if gpu.unhealthy and known.get(gpu.uuid) != gpu.unhealthy:
            log.error("GPU is unhealthy", extra={"gpu": gpu.name, "pci": str(gpu.pci), "reason": gpu.unhealthy})
    for warning in now.warnings:
        if warning not in before.warnings:
            log.warning("fact left out", extra={"warning": warning})
