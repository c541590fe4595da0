"""Kubernetes quantities: integers written as the API server stores them, and any quantity read back.

Sent in that form, a quantity comes back unchanged. Source: apimachinery `pkg/api/resource/quantity.go`, and answers of a 1.37 server.
"""

from __future__ import annotations

import re
from fractions import Fraction

_BINARY_SUFFIXES = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_DECIMAL_SUFFIXES = ("", "k", "M", "G", "T", "P", "E")
_SCALES = {
    **{suffix: Fraction(1000**power) for power, suffix in enumerate(_DECIMAL_SUFFIXES)},
    **{suffix: Fraction(1024**power) for power, suffix in enumerate(_BINARY_SUFFIXES)},
    **{suffix: Fraction(1, 1000**power) for power, suffix in enumerate(("m", "u", "n"), start=1)},
}
_QUANTITY = re.compile(
    r"(?P<number>[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+))(?:[eE](?P<exponent>[+-]?[0-9]{1,3})|(?P<suffix>[KMGTPE]i|[numkMGTPE])?)"
)
_LONGEST = 64
"""Characters; far beyond 2⁶³ − 1, where Kubernetes caps, and short enough to be read at once."""


def canonical(value: int) -> str:
    """`value` in the form the API server stores: 85520809984 → `81559Mi`, 42949672960 → `40Gi`, 7 → `7`.

    Binary suffixes where one fits without a fraction, else decimal ones, since the server reads a bare number as decimal (2000 → `2k`).
    """
    base, suffixes = (1024, _BINARY_SUFFIXES) if value % 1024 == 0 else (1000, _DECIMAL_SUFFIXES)
    power = 0
    while value and value % base == 0 and power < len(suffixes) - 1:
        value //= base
        power += 1
    return f"{value}{suffixes[power]}"


def parse(text: str) -> Fraction:
    """The exact value of any quantity: `81559Mi`, `1.5G`, `2e3`, `100m`. Raises ValueError.

    Unlike Kubernetes, fractions finer than a billionth are kept and nothing is capped at 2⁶³ − 1.
    """
    match = _QUANTITY.fullmatch(text) if len(text) <= _LONGEST else None
    if match is None:
        raise ValueError(f"{text[:_LONGEST]!r} is not a quantity such as 40Gi, 1500 or 100m")
    scale = Fraction(10) ** int(match["exponent"]) if match["exponent"] else _SCALES[match["suffix"] or ""]
    return Fraction(match["number"]) * scale
