"""Limits of the ResourceSlice API, by the API server's minor version.

Source: resource/v1 `types.go` and validation of Kubernetes 1.34 to 1.37.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from gpu_dra.kube.api import ServerVersion

ATTRIBUTES_AND_CAPACITIES = 32
"""Entries of one device, attributes and capacities together."""
STRING_BYTES = 64
"""UTF-8 bytes of a string or version attribute."""
DOMAIN_LENGTH = 63
IDENTIFIER_LENGTH = 32
DRIVER_LENGTH = 63
POOL_NAME_LENGTH = 253

_DEVICES = 128
_DEVICES_WITH_TAINTS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceLimits:
    """What differs between the API servers we support."""

    devices: int
    """Devices we put in one slice. Where a taint may come at any time it is the smaller limit of a slice with taints, so that a taint
    never moves a device into another slice."""
    taints: int
    """Taints of one device."""
    keeps_taints: bool
    """Whether the server keeps device taints by default (gate DRADeviceTaints, on since 1.36); elsewhere it drops them silently."""
    effects: frozenset[str]
    """Effects a taint may have."""

    @classmethod
    def of(cls, server: ServerVersion) -> Self:
        """The limits of one API server."""
        version = (server.major, server.minor)
        keeps_taints = version >= (1, 36)
        since_1_35 = version >= (1, 35)
        return cls(
            devices=_DEVICES_WITH_TAINTS if keeps_taints else _DEVICES,
            taints=16 if since_1_35 else 4,
            keeps_taints=keeps_taints,
            effects=frozenset({"NoSchedule", "NoExecute"} | ({"None"} if since_1_35 else set())),
        )

    def devices_in(self, *, tainted: bool) -> int:
        """Devices the server takes in one slice, with or without a tainted one among them."""
        return _DEVICES_WITH_TAINTS if tainted else _DEVICES
