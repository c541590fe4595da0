"""Where the rooms' observers meet the metrics."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from gpu_dra.claims.report import Operation

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpu_dra.claims.report import Report
    from gpu_dra.core.clock import Clock
    from gpu_dra.core.errors import GpuDraError
    from gpu_dra.kube.errors import Invalid
    from gpu_dra.model.prepared import PreparedClaim
    from gpu_dra.node.metrics import NodeMetrics
    from gpu_dra.slices.pool import Dropped


class ClaimMetrics:
    """The claims room's numbers."""

    def __init__(self, metrics: NodeMetrics) -> None:
        self._metrics = metrics

    def finished(self, report: Report) -> None:
        """One prepare or unprepare ended."""
        if report.operation is Operation.PREPARE:
            for step, seconds in report.steps.items():
                self._metrics.phase_seconds.labels(step).observe(seconds)

    def set_aside(self, reason: str) -> None:
        """A journal file was moved out of the way."""
        self._metrics.set_aside.labels(reason).inc()

    def recorded(self, claims: Mapping[str, PreparedClaim]) -> None:
        """Every claim this node holds."""
        types = Counter("mig" if "-mig-" in device.device else "gpu" for claim in claims.values() for device in claim.devices)
        self._metrics.set_prepared({"gpu": types["gpu"], "mig": types["mig"]})


class SliceMetrics:
    """The publisher's numbers, and why the slices are not as they should be."""

    def __init__(self, metrics: NodeMetrics, clock: Clock) -> None:
        self._metrics = metrics
        self._clock = clock
        self.stands_by = False
        """The other process of an update publishes."""
        self.unpublished: str | None = "no ResourceSlice has been published yet"

    def standing_by(self) -> None:
        """The other process of an update publishes, which is as good."""
        self.unpublished = None
        self.stands_by = True

    def took_over(self) -> None:
        """It is ours to publish now; until that was done nothing is known to be right."""
        self.stands_by = False
        self.unpublished = "this plugin has just taken over and has not compared the ResourceSlices yet"

    def wrote(self, verb: str) -> None:
        """One write succeeded."""
        self._metrics.slice_writes.labels(verb).inc()

    def published(self, *, slices: int, devices: int) -> None:
        """What is stored is right now."""
        self.unpublished = None
        self.stands_by = False
        self._metrics.published_slices.set(slices)
        self._metrics.published_devices.set(devices)
        self._metrics.last_publish.set(self._clock.wall())

    def not_kept(self, dropped: Sequence[Dropped]) -> None:
        """The server stored devices differently from what was sent."""
        self._metrics.slice_fields_not_kept.inc(len(dropped))

    def refused(self, error: Invalid) -> None:
        """The server will never take the pool as it is."""
        self.unpublished = f"the API server refuses this node's ResourceSlices: {error}"

    def failed(self, error: GpuDraError, *, retry_in: float) -> None:
        """Reading or writing failed. What is stored stays, so this does not end readiness; it tells why there is none yet."""
        if self.unpublished is not None:
            self.unpublished = f"this node's ResourceSlices cannot be published: {error}"
        self._metrics.publish_failures.labels(type(error).__name__).inc()
