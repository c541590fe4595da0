"""Whether a stored slice says what we want it to say.

Two forms of the same thing are equal: `1024Mi` and `1Gi`, an absent list and an empty one, a taint with and without the time at which
the server set it (source: the Go helper's slice controller, which takes a nil `timeAdded` as equal to any).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from gpu_dra.model import quantity

if TYPE_CHECKING:
    from gpu_dra.kube.api import Object

_COMPARED = ("driver", "pool", "nodeName", "devices", "sharedCounters")


def same_spec(left: Object, right: Object) -> bool:
    """True when two specs mean the same to a scheduler; the order of devices counts."""
    return all(_normal(left.get(field)) == _normal(right.get(field)) for field in _COMPARED)


def fingerprint(device: Object) -> str:
    """Equal for two devices that mean the same, and for no others."""
    return json.dumps(_normal(device), sort_keys=True)


def lost_fields(sent: Object, stored: Object) -> frozenset[str]:
    """Fields of a device that the server did not keep as they were sent."""
    return frozenset(field for field in sent if _normal(sent[field]) != _normal(stored.get(field)))


def _normal(value: object) -> object:
    match value:
        case dict():
            # A taint has a value too, which is a label and no quantity; only taints have a key.
            amounts = "key" not in value
            normal = {
                key: _amount(item) if amounts and key == "value" else _normal(item)
                for key, item in value.items()
                if key != "timeAdded"
            }
            return {key: item for key, item in normal.items() if item is not None} or None
        case list() | tuple():
            return [_normal(item) for item in value] or None
    return value


def _amount(text: str) -> str:
    try:
        return str(quantity.parse(text))
    except ValueError:
        return text
