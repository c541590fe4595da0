"""What one prepare or unprepare took, for whoever measures."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from gpu_dra.model.prepared import PreparedClaim


class Operation(StrEnum):
    """What was asked for; the first two by the kubelet."""

    PREPARE = "prepare"
    UNPREPARE = "unprepare"
    REPAIR = "repair"
    """Nobody asked: the reconcile makes a claim whole again."""


class Step(StrEnum):
    """Where the time of an operation goes."""

    LOCK = "lock"
    LOOK_UP = "look_up"
    GET_CLAIM = "get_claim"
    REFRESH = "refresh"
    PLAN = "plan"
    EFFECTS = "effects"
    CDI_BUILD = "cdi_build"
    CDI_WRITE = "cdi_write"
    JOURNAL = "journal"
    UNDO = "undo"


@dataclass(slots=True, kw_only=True)
class Report:
    """One operation, filled while it runs, by one thread at a time."""

    operation: Operation
    seconds: float = 0.0
    steps: dict[Step, float] = field(default_factory=dict)
    """Seconds in each step that took place."""
    recorded: Mapping[str, PreparedClaim] | None = None
    """Every claim this node holds afterwards, by UID; None when the operation changed nothing."""
    recorded_at: float = 0.0
    """When that was looked up, so that the older of two looks does not overwrite the newer one."""
    error: str | None = None
    """Kind of the error (its class name); None when it went well."""

    def holds(self, look: Callable[[], Mapping[str, PreparedClaim]]) -> None:
        """Take a fresh look at what the node holds, after a change."""
        self.recorded_at = time.monotonic()
        self.recorded = look()

    @contextlib.contextmanager
    def timed(self, step: Step) -> Iterator[None]:
        """Add the time of the block to `step`."""
        started = time.perf_counter()
        try:
            yield
        finally:
            self.steps[step] = self.steps.get(step, 0.0) + time.perf_counter() - started
