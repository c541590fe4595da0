"""Which opaque configuration applies to a device, and whether this version can honour it.

Contract: kinds of `resource.nvidia.com/v1beta1` and their precedence, defaults < class < claim, within a source the later entry wins.
Accepted is what a GPU does without being told: no sharing settings, or time-slicing with the default interval. Everything else is refused
by name: a setting that is silently ignored is worse than a pod that does not start. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpu_dra.core.errors import Refused

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpu_dra.model.claim import AllocationResult, OpaqueConfig

API_VERSION = "resource.nvidia.com/v1beta1"
_WAY_OUT = (
    f"this version accepts GpuConfig and MigDeviceConfig of {API_VERSION} without sharing, or with sharing.strategy TimeSlicing and "
    "the Default interval"
)
_KIND_OF_DEVICE = {"GpuConfig": "gpu", "MigDeviceConfig": "mig", "VfioDeviceConfig": "vfio"}
_FEATURE_OF_KIND = {
    "VfioDeviceConfig": "VFIO passthrough",
    "ComputeDomainChannelConfig": "compute domains (multi-node NVLink)",
    "ComputeDomainDaemonConfig": "compute domains (multi-node NVLink)",
}
"""Kinds of NVIDIA's driver that stand for a feature we do not have; whoever asks for one reads its name, not that a word is unknown."""
_FIELDS_OF_SHARING = {
    "GpuConfig": {"strategy", "timeSlicingConfig", "mpsConfig"},
    "MigDeviceConfig": {"strategy", "mpsConfig"},
}


def check_configs(configs: Sequence[OpaqueConfig], result: AllocationResult, *, device_type: str) -> None:
    """Refuse a configuration of this device that we cannot honour. `device_type` is `gpu` or `mig`. Raises Refused with the field's path.

    A device under adminAccess is not configured at all: it may be somebody else's.
    """
    if result.admin_access:
        return
    for config in reversed(configs):
        if not _covers(config, result.request):
            continue
        kind = _kind(config)
        if _KIND_OF_DEVICE[kind] == device_type:
            _check_content(config.parameters, kind, config.path)
            return
        if config.requests:  # an entry for all requests may leave out devices of another type; one that names the request may not
            if kind in _FEATURE_OF_KIND:
                raise _not_supported(config.path, kind)
            raise Refused(f"{config.path}: {kind} cannot apply to {result.device}, which is of type {device_type}")


def _covers(config: OpaqueConfig, request: str) -> bool:
    """A config that names `req` also covers `req/sub` (ResourceClaim.spec.devices.config.requests)."""
    return not config.requests or request in config.requests or request.partition("/")[0] in config.requests


def _kind(config: OpaqueConfig) -> str:
    api_version, kind = config.parameters.get("apiVersion"), config.parameters.get("kind")
    if api_version == API_VERSION and isinstance(kind, str):
        if kind in _KIND_OF_DEVICE:
            return kind
        if kind in _FEATURE_OF_KIND:
            raise _not_supported(config.path, kind)
    raise Refused(f"{config.path}: {api_version}/{kind} is not known; {_WAY_OUT}")


def _not_supported(path: str, kind: str) -> Refused:
    return Refused(f"{path}: {kind} asks for {_FEATURE_OF_KIND[kind]}, which is not supported yet; {_WAY_OUT}")


def _check_content(parameters: Mapping[str, Any], kind: str, path: str) -> None:
    _only(parameters, {"apiVersion", "kind", "sharing"}, path)
    sharing = parameters.get("sharing")
    if sharing is None:
        return
    where = f"{path}.sharing"
    _only(sharing, _FIELDS_OF_SHARING[kind], where)
    strategy = sharing.get("strategy")
    if strategy == "MPS":
        raise Refused(f"{where}.strategy: 'MPS' (Multi-Process Service) is not supported yet; {_WAY_OUT}")
    if strategy != "TimeSlicing":
        raise Refused(f"{where}.strategy: {strategy!r} is neither TimeSlicing nor MPS; {_WAY_OUT}")
    if sharing.get("mpsConfig") is not None:
        raise Refused(f"{where}.mpsConfig: does not belong to strategy TimeSlicing; {_WAY_OUT}")
    time_slicing = sharing.get("timeSlicingConfig")
    if time_slicing is None:
        return
    where = f"{where}.timeSlicingConfig"
    _only(time_slicing, {"interval"}, where)
    if time_slicing.get("interval") not in (None, "Default"):
        raise Refused(
            f"{where}.interval: {time_slicing['interval']!r} asks for time-slicing, which is not supported yet; {_WAY_OUT}"
        )


def _only(value: object, known: set[str], path: str) -> None:
    if not isinstance(value, dict):
        raise Refused(f"{path}: expected an object, found {type(value).__name__}; {_WAY_OUT}")
    unknown = sorted(set(value) - known)
    if unknown:
        raise Refused(f"{path}.{unknown[0]}: unknown field; {_WAY_OUT}")
