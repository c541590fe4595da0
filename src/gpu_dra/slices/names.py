"""Syntax of the names in a ResourceSlice, and the names of slices themselves.

Each check returns why a name is refused, or None. Source: apimachinery `util/validation`, resource/v1 validation.
"""

from __future__ import annotations

import re

from gpu_dra.slices.limits import DOMAIN_LENGTH, DRIVER_LENGTH, IDENTIFIER_LENGTH

_LABEL = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?")
_SUBDOMAIN = re.compile(rf"{_LABEL.pattern}(?:\.{_LABEL.pattern})*")
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LABEL_VALUE = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?")

_LABEL_LENGTH = 63
_SUBDOMAIN_LENGTH = 253
_GENERATED_LENGTH = 58
"""What the server keeps of `generateName` before it adds five random characters (apiserver `storage/names`)."""


def dns_label(name: str) -> str | None:
    """Names of devices."""
    if len(name) > _LABEL_LENGTH:
        return f"longer than {_LABEL_LENGTH} characters"
    return None if _LABEL.fullmatch(name) else f"{name!r} is not lower-case letters, digits and inner dashes"


def dns_subdomain(name: str) -> str | None:
    """Names of nodes and pools."""
    if len(name) > _SUBDOMAIN_LENGTH:
        return f"longer than {_SUBDOMAIN_LENGTH} characters"
    return None if _SUBDOMAIN.fullmatch(name) else f"{name!r} is not a lower-case DNS name"


def driver_name(name: str) -> str | None:
    """Names of drivers; upper case is taken."""
    if len(name) > DRIVER_LENGTH:
        return f"longer than {DRIVER_LENGTH} characters"
    return None if _SUBDOMAIN.fullmatch(name.lower()) else f"{name!r} is not a DNS name"


def qualified_name(name: str) -> str | None:
    """Names of attributes and capacities: `identifier` or `domain/identifier`."""
    domain, slash, identifier = name.rpartition("/")
    if slash and (len(domain) > DOMAIN_LENGTH or driver_name(domain) is not None):
        return f"domain of {name!r} is not a DNS name of at most {DOMAIN_LENGTH} characters"
    if len(identifier) > IDENTIFIER_LENGTH:
        return f"identifier longer than {IDENTIFIER_LENGTH} characters"
    return None if _IDENTIFIER.fullmatch(identifier) else f"{identifier!r} is not letters, digits and underscores"


def label_key(key: str) -> str | None:
    """Keys of taints."""
    prefix, slash, name = key.rpartition("/")
    if slash and dns_subdomain(prefix) is not None:
        return f"prefix of {key!r} is not a lower-case DNS name"
    return label_value(name) if name else "empty"


def label_value(value: str) -> str | None:
    """Values of taints; may be empty."""
    if len(value) > _LABEL_LENGTH:
        return f"longer than {_LABEL_LENGTH} characters"
    return None if not value or _LABEL_VALUE.fullmatch(value) else f"{value!r} is not letters, digits and inner '-', '_' or '.'"


def generate_name(index: int, *, driver: str, node_name: str) -> str:
    """`generateName` of a slice: the scheduler tries slices in the order of their names, so the index comes first.

    Cut where the server would cut, but never behind a dot, which would make an illegal name of a long node name.
    """
    return _stem(index, driver, node_name).rstrip("-.") + "-"


def index_of(name: str, *, driver: str, node_name: str) -> int | None:
    """The index in the name of a slice made by us or by NVIDIA's driver since its Kubernetes 1.36 library; None for other names."""
    digits = name.partition("-")[0]
    if not re.fullmatch(r"[0-9a-f]{5,8}", digits):
        return None
    index = int(digits, 16)
    return index if name.startswith(_stem(index, driver, node_name).rstrip("-.")) else None


def _stem(index: int, driver: str, node_name: str) -> str:
    return f"{index:05x}-{driver}-{node_name}"[: _GENERATED_LENGTH - 1]
