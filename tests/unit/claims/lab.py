"""A node with four GPUs, its claims room on a temporary directory, and everything around it under the test's control."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path

from gpu_dra.cdi.writer import SpecDirectory
from gpu_dra.claims.manager import ClaimSettings
from gpu_dra.claims.room import ClaimsRoom, open_claims
from gpu_dra.core.clock import FakeClock
from gpu_dra.hardware.host import HostPaths
from tests.unit.claims import samples


@dataclass
class Observed:
    """What the node's metrics would be told."""

    reports: list = field(default_factory=list)
    aside: list = field(default_factory=list)
    last: dict = field(default_factory=dict)

    def finished(self, report):
        self.reports.append(report)

    def set_aside(self, reason):
        self.aside.append(reason)

    def recorded(self, claims):
        self.last = dict(claims)


@dataclass
class Node:
    """One node. `start` is what a start of the plugin does; what came before stays on disk only."""

    directory: Path
    settings: ClaimSettings
    api: samples.StandInApi = field(default_factory=samples.StandInApi)
    inventories: samples.StandInInventories = field(
        default_factory=lambda: samples.StandInInventories(*(samples.gpu(minor) for minor in range(4)))
    )
    builder: samples.StandInBuilder = field(default_factory=samples.StandInBuilder)
    users: samples.StandInUsers = field(default_factory=samples.StandInUsers)
    observed: Observed = field(default_factory=Observed)
    clock: FakeClock = field(default_factory=FakeClock)
    effects: samples.FileEffects | None = None
    rooms: list[ClaimsRoom] = field(default_factory=list)

    def __post_init__(self):
        self.plugin = self.directory / "plugin"
        self.cdi = self.directory / "cdi"
        self.boot = self.directory / "proc/sys/kernel/random/boot_id"
        self.boot.parent.mkdir(parents=True, exist_ok=True)
        if not self.boot.exists():
            self.boot.write_text("boot-1\n")
        self.specs = SpecDirectory(self.cdi)
        self.cdi.mkdir(parents=True, exist_ok=True)
        (self.directory / "effects").mkdir(exist_ok=True)
        self.start()

    def start(self, **settings):
        room = open_claims(
            self.plugin,
            settings=dataclasses.replace(self.settings, **settings),
            api=self.api,
            inventories=self.inventories,
            specs=self.specs,
            builder=self.builder,
            host=HostPaths(proc=self.directory / "proc"),
            effects=self.effects,
            users=self.users,
            observer=self.observed,
            clock=self.clock,
        )
        self.rooms.append(room)
        self.manager, self.reconciler = room.manager, room.reconciler

    def with_effects(self):
        self.effects = samples.FileEffects(self.directory / "effects")
        self.start()
        return self.effects

    def reboot(self):
        self.boot.write_text("boot-2\n")
        for path in self.cdi.iterdir():
            path.unlink()
        self.start()

    def allocate(self, number, *devices, **facts):
        """The scheduler gives devices to a claim."""
        self.api.put(samples.claim(number, *(samples.result(device, **facts) for device in devices)))
        return samples.ref(number)

    def delete(self, number):
        del self.api.claims[f"claim-{number}"]

    def journal_file(self, number):
        return self.plugin / "claims" / f"{samples.uid(number)}.json"

    def cdi_file(self, number):
        return self.specs.path(samples.uid(number))

    def holds_nothing(self):
        """True when no file of any claim is left, temporary ones and locks of claims included."""
        left = [*self.cdi.iterdir(), *(self.plugin / "claims").iterdir(), *(self.plugin / "locks").glob("claim-*")]
        return not left and not list((self.directory / "effects").iterdir())
