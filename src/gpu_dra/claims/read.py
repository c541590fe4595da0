"""Read from a ResourceClaim what concerns this driver on this node, and nothing else.

Contract: `resource.k8s.io/v1` ResourceClaim.status. A claim may carry results and configuration of other drivers and for requests
that somebody else serves; those are left alone, however they look. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpu_dra.core.errors import NotReady, Refused
from gpu_dra.model.claim import AllocatedClaim, AllocationResult, ClaimRef, ConfigSource, OpaqueConfig

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_DEVICES = "status.allocation.devices"


def read_claim(claim: Mapping[str, Any], ref: ClaimRef, *, driver: str, pool: str) -> AllocatedClaim:
    """The part of `claim` that `driver` serves from `pool`.

    Raises Refused when the object has another UID, has nothing for us or is malformed (with the field's path), NotReady when it is not
    allocated.
    """
    found = (claim.get("metadata") or {}).get("uid")
    if found != ref.uid:
        raise Refused(
            f"claim {ref} was replaced: the API has uid {found} under that name; delete the pod that refers to the old one"
        )
    allocation = (claim.get("status") or {}).get("allocation")
    if not allocation:
        raise NotReady(f"claim {ref} is not allocated; waiting for the scheduler")
    devices = _mapping(allocation.get("devices") or {}, _DEVICES)
    results = tuple(_results(devices, driver))
    ours = tuple(result for result in results if result.pool == pool)
    if not ours:
        elsewhere = ", ".join(sorted({result.pool for result in results})) or "none"
        raise Refused(f"claim {ref} has no device of {driver} in pool {pool}; pools it was given devices from: {elsewhere}")
    requests = {name for result in ours for name in (result.request, result.base_request)}
    return AllocatedClaim(ref=ref, results=ours, configs=tuple(_configs(devices, driver, requests)))


def _results(devices: Mapping[str, Any], driver: str) -> Iterator[AllocationResult]:
    for path, result in _entries(devices, "results"):
        if result.get("driver") != driver:
            continue
        share_id = result.get("shareID")
        yield AllocationResult(
            request=_text(result, "request", path),
            pool=_text(result, "pool", path),
            device=_text(result, "device", path),
            admin_access=result.get("adminAccess") is True,
            share_id=None if share_id is None else _text(result, "shareID", path),
        )


def _configs(devices: Mapping[str, Any], driver: str, requests: set[str]) -> list[OpaqueConfig]:
    found = []
    for path, entry in _entries(devices, "config"):
        if "opaque" not in entry:
            if requests.isdisjoint(_requests(entry, path) or requests):
                continue  # for what somebody else serves
            raise Refused(f"{path}: a configuration that is not opaque is not known to this version of {driver}")
        opaque = _mapping(entry["opaque"], f"{path}.opaque")
        if opaque.get("driver") != driver:
            continue
        found.append(
            OpaqueConfig(
                source=_source(entry, path),
                requests=_requests(entry, path),
                parameters=_mapping(opaque.get("parameters"), f"{path}.opaque.parameters"),
                path=f"{path}.opaque.parameters",
            )
        )
    return sorted(found, key=lambda config: config.source is ConfigSource.CLAIM)  # the API lists the class first; make sure of it


def _source(entry: Mapping[str, Any], path: str) -> ConfigSource:
    try:
        return ConfigSource(str(entry.get("source")))
    except ValueError as error:
        raise Refused(f"{path}.source: {entry.get('source')!r} is neither FromClass nor FromClaim") from error


def _requests(entry: Mapping[str, Any], path: str) -> tuple[str, ...]:
    names = entry.get("requests") or []
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise Refused(f"{path}.requests: expected a list of request names")
    return tuple(names)


def _entries(devices: Mapping[str, Any], name: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    entries = devices.get(name) or []
    if not isinstance(entries, list):
        raise Refused(f"{_DEVICES}.{name}: expected a list")
    for index, entry in enumerate(entries):
        path = f"{_DEVICES}.{name}[{index}]"
        yield path, _mapping(entry, path)


def _mapping(value: object, path: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise Refused(f"{path}: expected an object, found {type(value).__name__}")
    return value


def _text(entry: Mapping[str, Any], name: str, path: str) -> str:
    value = entry.get(name)
    if not isinstance(value, str) or not value:
        raise Refused(f"{path}.{name}: expected a non-empty string")
    return value
