"""Take GPUs that the agent works on out of what is offered, as soon as it says so and until it is done or its time is over."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from gpu_dra.core.clock import Clock
    from gpu_dra.hardware.reservations import Reservation, Reservations
    from gpu_dra.model.inventory import Inventory

POLL_SECONDS: Final = 1.0


class ReservedGpus:
    """What is reserved now, looked at every second."""

    def __init__(self, reservations: Reservations, *, clock: Clock) -> None:
        self.changed = asyncio.Event()
        self._reservations = reservations
        self._clock = clock
        self._stamp = reservations.stamp()
        self._now: tuple[Reservation, ...] = reservations.read(now=clock.wall())

    def is_exclusive(self) -> bool:
        """Whether somebody wants NVML for himself."""
        return any(each.exclusive for each in self._now)

    def without(self, inventory: Inventory) -> Inventory:
        """The inventory that may be offered."""
        taken = {each.uuid for each in self._now}
        return replace(inventory, gpus=tuple(gpu for gpu in inventory.gpus if gpu.uuid not in taken)) if taken else inventory

    async def run(self) -> None:
        """Look for ever."""
        while True:
            stamp = self._reservations.stamp()
            if stamp != self._stamp or self._now:
                self._stamp = stamp
                now = await asyncio.to_thread(self._reservations.read, now=self._clock.wall())
                if now != self._now:
                    self._now = now
                    self.changed.set()
            await self._clock.sleep(POLL_SECONDS)
