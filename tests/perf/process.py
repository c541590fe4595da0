"""CPU and memory of a process, from procfs."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class ProcessFigures:
    """Read anew at each question."""

    pid: int

    def cpu_seconds(self) -> float:
        """User and system time so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory_mib(self) -> dict[str, float]:
        """Resident, proportional and anonymous memory."""
        lines = Path(f"/proc/{self.pid}/smaps_rollup").read_text().splitlines()[1:]
        values = {key: int(rest.split()[0]) for key, _, rest in (line.partition(":") for line in lines)}
        return {"rss": values["Rss"] / 1024, "pss": values["Pss"] / 1024, "anonymous": values["Anonymous"] / 1024}
