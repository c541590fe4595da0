"""The API server's own rules, applied before it sees a slice, so that one bad value costs that value and not the slice.

Covers the fields we publish: names, attributes, capacities, taints and counts. Source: k/k `pkg/apis/resource/validation/validation.go`;
`tests/contract/test_slice_validation*.py` hold these rules against a table of hostile slices and against a real server.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from gpu_dra.model import quantity, semver
from gpu_dra.slices import names
from gpu_dra.slices.attributes import NEVER_TRIMMED, TABLE, TRIMMED_FIRST
from gpu_dra.slices.limits import ATTRIBUTES_AND_CAPACITIES, POOL_NAME_LENGTH, STRING_BYTES
from gpu_dra.slices.pool import Dropped

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gpu_dra.kube.api import Object
    from gpu_dra.slices.limits import SliceLimits

_INT64 = range(-(2**63), 2**63)


class Part(StrEnum):
    """Which part of a device a flaw is in, and so what is left out because of it."""

    DEVICE = "device"
    ATTRIBUTE = "attribute"
    CAPACITY = "capacity"
    TAINTS = "taints"


@dataclass(frozen=True, slots=True, kw_only=True)
class Flaw:
    """One reason for which the API server would refuse the slice of a device."""

    part: Part
    reason: str
    key: str = ""
    """Name of the attribute or capacity."""


def sanitize(devices: Iterable[Object], limits: SliceLimits) -> tuple[tuple[Object, ...], tuple[Dropped, ...]]:
    """The devices the server will take, each without what it would refuse, and what was left out.

    A device with a bad or repeated name is left out, and so is one whose taints are bad: offering it without them would be wrong.
    """
    kept: dict[str, Object] = {}
    dropped: list[Dropped] = []
    for device in devices:
        sane, losses = _sanitize_device(device, limits)
        dropped.extend(losses)
        if sane is None:
            continue
        if sane["name"] in kept:
            dropped.append(Dropped(device=sane["name"], what=Part.DEVICE, reason="another device of the node has the same name"))
            continue
        kept[sane["name"]] = sane
    return tuple(kept.values()), tuple(dropped)


def refusals(spec: Object, limits: SliceLimits) -> tuple[str, ...]:
    """Why the server would refuse a slice with this spec; empty when it would take it."""
    devices: list[Object] = spec.get("devices", [])
    reasons = list(_spec_refusals(spec))
    most = limits.devices_in(tainted=any(device.get("taints") for device in devices))
    if len(devices) > most:
        reasons.append(f"devices: {len(devices)}, at most {most} are taken")
    repeated = [name for name, count in Counter(device["name"] for device in devices).items() if count > 1]
    reasons.extend(f"devices: name {name} is there more than once" for name in repeated)
    for device in devices:
        reasons.extend(f"device {device['name']}: {flaw.part} {flaw.key}: {flaw.reason}" for flaw in check_device(device, limits))
    return tuple(reasons)


def check_device(device: Object, limits: SliceLimits) -> Iterator[Flaw]:
    """Everything the server would refuse in one device."""
    if reason := names.dns_label(device["name"]):
        yield Flaw(part=Part.DEVICE, reason=f"name {reason}")
    attributes, capacity = device.get("attributes", {}), device.get("capacity", {})
    if (entries := len(attributes) + len(capacity)) > ATTRIBUTES_AND_CAPACITIES:
        yield Flaw(part=Part.DEVICE, reason=f"{entries} attributes and capacities, at most {ATTRIBUTES_AND_CAPACITIES} are taken")
    for name, value in attributes.items():
        if reason := names.qualified_name(name) or _attribute_refusal(value):
            yield Flaw(part=Part.ATTRIBUTE, key=name, reason=reason)
    for name, value in capacity.items():
        if reason := names.qualified_name(name) or _capacity_refusal(value):
            yield Flaw(part=Part.CAPACITY, key=name, reason=reason)
    yield from _check_taints(device.get("taints", []), limits)


def _sanitize_device(device: Object, limits: SliceLimits) -> tuple[Object | None, list[Dropped]]:
    sane = {**device, "attributes": dict(device.get("attributes", {})), "capacity": dict(device.get("capacity", {}))}
    dropped = []
    for flaw in check_device(device, limits):
        if flaw.part in (Part.ATTRIBUTE, Part.CAPACITY):
            _remove(sane, flaw.key, flaw.part)
            dropped.append(Dropped(device=device["name"], what=f"{flaw.part} {flaw.key}", reason=flaw.reason))
    dropped.extend(_trim(sane))
    for flaw in check_device(sane, limits):
        dropped.append(Dropped(device=device["name"], what=Part.DEVICE, reason=f"{flaw.part}: {flaw.reason}"))
        return None, dropped
    return sane, dropped


def _trim(device: Object) -> Iterator[Dropped]:
    """Remove entries above the limit, the most dispensable first."""
    entries = [(Part.ATTRIBUTE, name) for name in device["attributes"]] + [(Part.CAPACITY, name) for name in device["capacity"]]
    excess = len(entries) - ATTRIBUTES_AND_CAPACITIES
    for part, name in sorted(entries, key=lambda entry: (_worth(entry[1]), entry[1]))[: max(excess, 0)]:
        _remove(device, name, part)
        reason = f"left out to stay within {ATTRIBUTES_AND_CAPACITIES} attributes and capacities"
        yield Dropped(device=device["name"], what=f"{part} {name}", reason=reason)


def _worth(name: str) -> int:
    """Rank of an entry when there is not room for all: foreign names go first, those nobody can do without last."""
    if name not in TABLE:
        return -1
    if name in TRIMMED_FIRST:
        return TRIMMED_FIRST.index(name)
    return len(TRIMMED_FIRST) + (name in NEVER_TRIMMED)


def _remove(device: Object, name: str, part: Part) -> None:
    del device["attributes" if part is Part.ATTRIBUTE else "capacity"][name]


def _spec_refusals(spec: Object) -> Iterator[str]:
    if reason := names.driver_name(spec["driver"]):
        yield f"driver: {reason}"
    if reason := names.dns_subdomain(spec["nodeName"]):
        yield f"nodeName: {reason}"
    pool = spec["pool"]
    if len(pool["name"]) > POOL_NAME_LENGTH:
        yield f"pool.name: longer than {POOL_NAME_LENGTH} characters"
    for part in pool["name"].split("/"):
        if reason := names.dns_subdomain(part):
            yield f"pool.name: {reason}"
    if pool["generation"] < 0:
        yield "pool.generation: below zero"
    if pool["resourceSliceCount"] <= 0:
        yield "pool.resourceSliceCount: not above zero"


def _attribute_refusal(value: Object) -> str | None:
    if len(value) != 1:
        return "not exactly one value"
    (kind, content), *_ = value.items()
    match kind, content:
        case "bool", bool():
            return None
        case "int", int() if not isinstance(content, bool):
            return None if content in _INT64 else "not a 64-bit integer"
        case "string", str():
            return _text_refusal(content)
        case "version", str():
            return _text_refusal(content) or (
                None if semver.is_semver(content) else f"{content!r} is not a strict semantic version"
            )
    return f"{kind} is not an int, bool, string or version with a value of that type"


def _text_refusal(text: str) -> str | None:
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        return "not valid Unicode"
    return None if size <= STRING_BYTES else f"{size} bytes, at most {STRING_BYTES} are taken"


def _capacity_refusal(value: Object) -> str | None:
    amount: Any = value.get("value")
    if not isinstance(amount, str):
        return "no value"
    try:
        quantity.parse(amount)
    except ValueError as error:
        return str(error)
    return None


def _check_taints(taints: list[Object], limits: SliceLimits) -> Iterator[Flaw]:
    if len(taints) > limits.taints:
        yield Flaw(part=Part.TAINTS, reason=f"{len(taints)}, at most {limits.taints} are taken")
    for taint in taints:
        if reason := names.label_key(taint["key"]):
            yield Flaw(part=Part.TAINTS, reason=f"key: {reason}")
        if reason := names.label_value(taint.get("value", "")):
            yield Flaw(part=Part.TAINTS, reason=f"value: {reason}")
        if taint["effect"] not in limits.effects:
            yield Flaw(part=Part.TAINTS, reason=f"effect {taint['effect']!r} is none of {', '.join(sorted(limits.effects))}")
