"""What the scheduler decided: the part of a ResourceClaim that concerns this driver."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimRef:
    """Which claim. The UID is the identity; namespace and name are how a person calls it."""

    namespace: str
    name: str
    uid: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name} (uid {self.uid})"


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocationResult:
    """One device the scheduler gave to a claim (`status.allocation.devices.results[]`), of our driver and our pool."""

    request: str
    """As recorded: `req` or `req/sub`."""
    pool: str
    device: str
    admin_access: bool = False
    share_id: str | None = None

    @property
    def base_request(self) -> str:
        """The request without its sub-request part, which is what the kubelet matches containers by."""
        return self.request.partition("/")[0]


class ConfigSource(StrEnum):
    """Who wrote an opaque configuration (`status.allocation.devices.config[].source`)."""

    CLASS = "FromClass"
    CLAIM = "FromClaim"


@dataclass(frozen=True, slots=True, kw_only=True)
class OpaqueConfig:
    """One opaque configuration entry of our driver, not yet decoded."""

    source: ConfigSource
    requests: tuple[str, ...]
    """Which requests it names; empty means all."""
    parameters: Mapping[str, Any]
    path: str
    """Where it stands in the claim, for error messages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocatedClaim:
    """A claim whose UID was checked, cut down to the results and configuration of our driver and pool."""

    ref: ClaimRef
    results: tuple[AllocationResult, ...]
    configs: tuple[OpaqueConfig, ...] = ()
