"""How often the slices of a node may change, so that a flapping GPU or a contender cannot load the API server.

One change per 2 s with a burst of 5; what comes while a change waits is made part of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpu_dra.core.clock import Clock


class ChangeBudget:
    """A token bucket that starts full."""

    def __init__(self, clock: Clock, *, burst: int = 5, seconds_per_change: float = 2.0) -> None:
        self._clock = clock
        self._burst = burst
        self._seconds_per_change = seconds_per_change
        self._tokens = float(burst)
        self._counted_at = clock.monotonic()

    def seconds_to_wait(self) -> float:
        """Until the next change is allowed; 0 when it is now."""
        self._refill()
        return max(0.0, (1.0 - self._tokens) * self._seconds_per_change)

    def spend(self) -> None:
        """Count one change."""
        self._refill()
        self._tokens -= 1.0

    def _refill(self) -> None:
        now = self._clock.monotonic()
        self._tokens = min(float(self._burst), self._tokens + (now - self._counted_at) / self._seconds_per_change)
        self._counted_at = now
