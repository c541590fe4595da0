"""When the kubelet may find us: the registration socket is opened once it does not take calls away from somebody who serves them better.

The kubelet calls whoever registered last. So we wait while another driver of our name serves the node, and, in an update, while the plugin
that we are to replace serves and our own driver is not ready: a wrong setting in an upgrade must not reach the kubelet. Once nobody else
serves we register whatever the driver says, since claims must be unprepared in any case.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Final

from gpu_dra.core.tasks import supervise
from gpu_dra.model.inventory import DriverState
from gpu_dra.node.servers import serving

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from gpu_dra.core.clock import Clock
    from gpu_dra.core.locks import LockDirectory
    from gpu_dra.node.coexistence import Coexistence
    from gpu_dra.node.ports import Inventories
    from gpu_dra.node.registration import RegistrationService

log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 0.5
"""Between two looks while we wait."""


def siblings(locks: LockDirectory, own: Path) -> list[str]:
    """Names of the registration sockets of other living processes of ours on this node; each holds the lock of its name. Blocking."""
    names = (name for name in locks.names() if name.endswith("-reg.sock") and name != own.name)
    return [name for name in names if locks.is_held_elsewhere(name)]


class Registering:
    """Opens the registration socket when its time has come."""

    def __init__(
        self,
        path: Path,
        registration: RegistrationService,
        *,
        coexistence: Coexistence,
        inventories: Inventories,
        locks: LockDirectory,
        clock: Clock,
    ) -> None:
        self._path = path
        self._registration = registration
        self._coexistence = coexistence
        self._inventories = inventories
        self._locks = locks
        self._clock = clock

    async def obstacle(self) -> str:
        """Why not yet; empty when nothing speaks against it."""
        if reason := await self._coexistence.peer():
            return reason
        inventory = self._inventories.current
        if inventory.state is not DriverState.READY and siblings(self._locks, self._path):
            return f"the plugin that this one is to replace goes on serving: {inventory.reason}"
        return ""

    @contextlib.asynccontextmanager
    async def registered(self) -> AsyncIterator[None]:
        """Let the kubelet find us for the block, at once or as soon as nothing speaks against it. Raises Broken when it cannot be."""
        if not await self.obstacle():
            async with self._served():
                yield
            return
        task = asyncio.create_task(supervise("registration", self._later, clock=self._clock))
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _later(self) -> None:
        told = ""
        while reason := await self.obstacle():
            if reason != told:
                log.warning("not registering with the kubelet", extra={"reason": reason})
                told = self._registration.state.reason = reason
            await self._clock.sleep(LOOK_SECONDS)
        async with self._served():
            await asyncio.Event().wait()

    @contextlib.asynccontextmanager
    async def _served(self) -> AsyncIterator[None]:
        async with serving(self._path, self._registration.handlers(), grace=0):
            self._registration.state.served = True
            try:
                yield
            finally:
                self._registration.state.served = False
