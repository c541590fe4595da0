"""How many nodes may be out, when, and for how long. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from gpu_dra.core.errors import Refused

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A time in which upgrades may start: a cron expression for its begin, a length, and the zone in which the clock is read."""

    cron: str
    seconds: float
    zone: str = "UTC"

    def __post_init__(self) -> None:
        """Raises Refused, naming the field, when it can never open."""
        try:
            ZoneInfo(self.zone)
        except (OSError, ValueError, KeyError) as error:
            raise Refused(
                f"upgrade.windows: timeZone {self.zone!r} is not known; write one such as Europe/Berlin or UTC"
            ) from error
        try:
            CronSim(self.cron, datetime.now(tz=UTC))
        except CronSimError as error:
            raise Refused(
                f"upgrade.windows: cron {self.cron!r} cannot be read: {error}; write five fields such as '0 22 * * 6'"
            ) from error
        if self.seconds <= 0:
            raise Refused(f"upgrade.windows: the window {self.cron!r} has no length; write a duration such as 4h")

    def is_open(self, now: float) -> bool:
        """Whether it has begun and not ended. `now`: seconds of the epoch."""
        moment = datetime.fromtimestamp(now, tz=ZoneInfo(self.zone))
        try:
            begin = next(CronSim(self.cron, moment + timedelta(seconds=1), reverse=True))
        except StopIteration:
            return False
        return now < begin.timestamp() + self.seconds

    def __str__(self) -> str:
        return f"{self.cron} ({self.zone}) for {self.seconds / 3600:g} h"


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What an administrator allows. The defaults are those of a careful person: one node at a time, and stop at the first failure."""

    auto: bool = True
    """False: nodes are found and named, and none is started."""
    paused: bool = False
    max_parallel: int = 1
    """Nodes under way at the same time; 0: as many as `max_unavailable` allows."""
    max_unavailable: int | str = "25%"
    """Nodes out at the same time, for whatever reason: a number, or a part of all in percent, rounded down and at least one."""
    windows: Sequence[Window] = ()
    """No window: always."""
    pause_after_failures: int = 1
    """Failed nodes after which no further one is started; 0: go on."""
    wait_for_jobs_seconds: float = 0.0
    """How long pods of Jobs may go on before they are evicted as well."""
    evict_seconds: float = 300.0
    """After which an eviction that is refused is given up, and the node is given back as it was."""
    again_seconds: float = 1800.0
    """After which a node that was given back is tried again; others have their turn meanwhile."""
    driver_seconds: float = 1200.0
    """For the driver container to come up; building modules takes minutes."""
    validation_seconds: float = 600.0
    roll_back: bool = True
    """Bring back the last driver that worked when the new one does not."""

    def most_unavailable(self, nodes: int) -> int:
        """`max_unavailable` as a number of nodes."""
        if isinstance(self.max_unavailable, int):
            return self.max_unavailable
        return max(1, nodes * int(self.max_unavailable.removesuffix("%")) // 100)

    def closed(self, now: float) -> str:
        """Why no node may start now; empty when one may."""
        if self.paused:
            return "the GpuStack is paused"
        if not self.auto:
            return "upgrade.auto is false"
        if self.windows and not any(window.is_open(now) for window in self.windows):
            return f"outside of the maintenance windows: {'; '.join(map(str, self.windows))}"
        return ""
