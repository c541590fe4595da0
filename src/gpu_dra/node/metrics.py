"""Metrics of the node plugin.

The `nvidia_dra_*` names, labels and bucket edges are those of NVIDIA's driver, so that its dashboards go on working; ours carry the
prefix `gpu_dra_`. A request is counted when it ends, whether it failed or not, and is in flight from its arrival.
"""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import generate_latest

from gpu_dra.model.inventory import DriverState

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from gpu_dra.model.inventory import Inventory

SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 45.0)
"""From a millisecond to the kubelet's deadline; holds the edges of NVIDIA's histogram from 0.05 to 12.8."""

OPERATIONS = ("prepare", "unprepare")


class NodeMetrics:
    """One registry of our own, not the library's global one, so that tests can have many."""

    def __init__(self, *, driver: str, node: str) -> None:
        self.registry = CollectorRegistry()
        self._driver = driver
        self._node = node
        self.requests_total = Counter(
            "nvidia_dra_requests", "DRA calls of the kubelet.", ["driver", "operation"], registry=self.registry
        )
        self.request_seconds = Histogram(
            "nvidia_dra_request_duration_seconds",
            "Time of a DRA call from arrival to answer.",
            ["driver", "operation"],
            buckets=SECONDS,
            registry=self.registry,
        )
        self.requests_inflight = Gauge(
            "nvidia_dra_requests_inflight", "DRA calls being worked on.", ["driver", "operation"], registry=self.registry
        )
        self.prepared_devices = Gauge(
            "nvidia_dra_prepared_devices", "Devices in prepared claims.", ["node", "driver", "device_type"], registry=self.registry
        )
        self.errors = {
            operation: Counter(
                f"nvidia_dra_node_{operation}_errors",
                f"Claims that failed to {operation}, by kind of error.",
                ["driver", "error_type"],
                registry=self.registry,
            )
            for operation in OPERATIONS
        }
        self.phase_seconds = Histogram(
            "gpu_dra_prepare_phase_seconds", "Time of one phase of a prepare.", ["phase"], buckets=SECONDS, registry=self.registry
        )
        self.set_aside = Counter(
            "gpu_dra_journal_set_aside",
            "Damaged journal files set aside; each was rebuilt or reported.",
            ["reason"],
            registry=self.registry,
        )
        self._slices()
        self.driver_ready = Gauge(
            "gpu_dra_driver_ready", "1 when NVML answers on this node; the state tells why not.", ["state"], registry=self.registry
        )
        self.gpu_faults = Gauge("gpu_dra_gpu_faults", "GPUs that could not be described.", registry=self.registry)
        for operation in OPERATIONS:
            self.requests_total.labels(driver, operation)
            self.request_seconds.labels(driver, operation)
            self.requests_inflight.labels(driver, operation)

    def _slices(self) -> None:
        self.published_slices = Gauge("gpu_dra_published_slices", "ResourceSlices of this node.", registry=self.registry)
        self.published_devices = Gauge("gpu_dra_published_devices", "Devices in these slices.", registry=self.registry)
        self.last_publish = Gauge(
            "gpu_dra_last_publish_timestamp_seconds",
            "Unix time when the stored slices were last known to be right.",
            registry=self.registry,
        )
        self.slice_writes = Counter("gpu_dra_slice_writes", "Writes of ResourceSlices.", ["verb"], registry=self.registry)
        self.publish_failures = Counter(
            "gpu_dra_publish_failures", "Failed reads or writes of slices; each is retried.", ["kind"], registry=self.registry
        )
        self.slice_fields_not_kept = Counter(
            "gpu_dra_slice_fields_not_kept", "Devices the server stored differently from what was sent.", registry=self.registry
        )

    @contextlib.contextmanager
    def request(self, operation: str) -> Iterator[None]:
        """Count and time one DRA call."""
        inflight = self.requests_inflight.labels(self._driver, operation)
        inflight.inc()
        started = time.perf_counter()
        try:
            yield
        finally:
            inflight.dec()
            self.requests_total.labels(self._driver, operation).inc()
            self.request_seconds.labels(self._driver, operation).observe(time.perf_counter() - started)

    def failed(self, operation: str, error: BaseException) -> None:
        """Count one claim that failed."""
        self.errors[operation].labels(self._driver, type(error).__name__).inc()

    def set_inventory(self, inventory: Inventory) -> None:
        """What discovery found last."""
        self.driver_ready.clear()
        self.driver_ready.labels(inventory.state).set(inventory.state is DriverState.READY)
        self.gpu_faults.set(len(inventory.faults))

    def set_prepared(self, by_type: Mapping[str, int]) -> None:
        """How many devices of each type (`gpu`, `mig`) are in prepared claims."""
        for device_type, count in by_type.items():
            self.prepared_devices.labels(self._node, self._driver, device_type).set(count)

    def exposition(self) -> bytes:
        """The text format."""
        return generate_latest(self.registry)
