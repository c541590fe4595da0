"""Take GPUs that the agent works on out of what is offered, as soon as it says so and until it is done or its time is over.

And until they were looked at after that: the last snapshot is of what they were before the work, and whoever got a device of it would
wait for something that is there no more. Nothing is prepared on them meanwhile either.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from gpu_dra.model.inventory import GpuFault

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from gpu_dra.claims.ports import Inventories
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
        self._now: tuple[Reservation, ...] = reservations.read(now=clock.monotonic())
        self._back: frozenset[str] = frozenset()
        """UUIDs of GPUs that are free again and were not looked at since."""

    def is_exclusive(self) -> bool:
        """Whether somebody wants NVML for himself."""
        return any(each.exclusive for each in self._now)

    def without(self, inventory: Inventory) -> Inventory:
        """The inventory that may be offered."""
        taken = dict.fromkeys(self._back, "is looked at again after work on it") | {each.uuid: each.reason for each in self._now}
        if not taken:
            return inventory
        faults = tuple(GpuFault(where=gpu.name, reason=taken[gpu.uuid], pci=gpu.pci) for gpu in inventory.gpus if gpu.uuid in taken)
        gpus = tuple(gpu for gpu in inventory.gpus if gpu.uuid not in taken)
        return replace(inventory, gpus=gpus, faults=(*inventory.faults, *faults))

    async def run(self, look: Callable[[], Awaitable[Inventory]]) -> None:
        """Follow the reservations for ever. `look`: a look at the hardware that begins after the call."""
        while True:
            stamp = self._reservations.stamp()
            if stamp != self._stamp or self._now:
                self._stamp = stamp
                now = await asyncio.to_thread(self._reservations.read, now=self._clock.monotonic())
                if now != self._now:
                    self._back |= {each.uuid for each in self._now} - {each.uuid for each in now}
                    self._now = now
                    self.changed.set()
            if self._back and not self.is_exclusive():
                await look()
                self._back = frozenset()
                self.changed.set()
            await self._clock.sleep(POLL_SECONDS)


class UnreservedInventories:
    """The node's devices without those that are reserved: what the claims room may prepare."""

    def __init__(self, inventories: Inventories, reserved: ReservedGpus) -> None:
        self._inventories = inventories
        self._reserved = reserved

    @property
    def current(self) -> Inventory:
        """The newest snapshot, from memory."""
        return self._reserved.without(self._inventories.current)

    async def refresh(self) -> Inventory:
        """A new look at the hardware now."""
        return self._reserved.without(await self._inventories.refresh())
