"""Latencies as people quote them: nearest-rank percentiles in milliseconds, with n."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class Latencies:
    """A series of durations in seconds."""

    name: str
    seconds: tuple[float, ...]

    def percentile(self, percent: float) -> float:
        """Nearest rank, in milliseconds."""
        ordered = sorted(self.seconds)
        rank = max(1, math.ceil(percent / 100 * len(ordered)))
        return ordered[rank - 1] * 1000

    def row(self) -> dict[str, float | int | str]:
        """One row of the report."""
        return {
            "what": self.name,
            "n": len(self.seconds),
            "p50_ms": round(self.percentile(50), 2),
            "p90_ms": round(self.percentile(90), 2),
            "p99_ms": round(self.percentile(99), 2),
            "max_ms": round(max(self.seconds) * 1000, 2),
        }


def table(rows: Sequence[dict[str, float | int | str]]) -> str:
    """Rows as aligned text."""
    heads = list(rows[0])
    cells = [[str(row[head]) for head in heads] for row in rows]
    widths = [max(len(line[i]) for line in [heads, *cells]) for i in range(len(heads))]
    lines = [heads, *cells]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if i == 0 else cell.rjust(width) for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        for line in lines
    )
