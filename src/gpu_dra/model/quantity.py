"""Kubernetes quantities: integers written in the canonical BinarySI form, and any quantity read back.

Sent in the canonical form, a quantity comes back from the API server unchanged. Source: apimachinery `pkg/api/resource/quantity.go`.
"""

from __future__ import annotations

import re
from fractions import Fraction

_BINARY_SUFFIXES = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_SCALES = {
    **{suffix: Fraction(1024**power) for power, suffix in enumerate(_BINARY_SUFFIXES)},
    **{suffix: Fraction(10) ** power for suffix, power in (("n", -9), ("u", -6), ("m", -3), ("k", 3), ("M", 6), ("G", 9))},
    **{suffix: Fraction(10) ** power for suffix, power in (("T", 12), ("P", 15), ("E", 18))},
}
_QUANTITY = re.compile(
    r"(?P<number>[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+))(?:[eE](?P<exponent>[+-]?[0-9]{1,3})|(?P<suffix>[KMGTPE]i|[numkMGTPE])?)"
)
_LONGEST = 64
"""Characters; far beyond 2⁶³ − 1, where Kubernetes caps, and short enough to be read at once."""


def binary(value: int) -> str:
    """`value` as a canonical BinarySI quantity: 85520809984 → `81559Mi`, 42949672960 → `40Gi`, 7 → `7`."""
    if abs(value) < 1024:
        # Kubernetes writes these in decimal, where the largest suffix without a fraction is canonical.
        return f"{value // 1000}k" if value and value % 1000 == 0 else str(value)
    power = 0
    while value % 1024 == 0 and power < len(_BINARY_SUFFIXES) - 1:
        value //= 1024
        power += 1
    return f"{value}{_BINARY_SUFFIXES[power]}"


def parse(text: str) -> Fraction:
    """The exact value of any quantity: `81559Mi`, `1.5G`, `2e3`, `100m`. Raises ValueError.

    Unlike Kubernetes, fractions finer than a billionth are kept and nothing is capped at 2⁶³ − 1.
    """
    match = _QUANTITY.fullmatch(text) if len(text) <= _LONGEST else None
    if match is None:
        raise ValueError(f"{text[:_LONGEST]!r} is not a quantity such as 40Gi, 1500 or 100m")
    scale = Fraction(10) ** int(match["exponent"]) if match["exponent"] else _SCALES[match["suffix"] or ""]
    return Fraction(match["number"]) * scale
