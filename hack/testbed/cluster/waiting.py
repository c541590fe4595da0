"""Wait for a part of a lab to do its work, and say what is wrong when it does not."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from hack.testbed.cluster.errors import LabError
from hack.testbed.cluster.processes import Process, log_tail, wait_until

_ADVICE = "When mended, run `hack/cluster up` again; it starts what is missing. `hack/cluster down` takes everything away."


def wait_for(what: str, condition: Callable[[], bool], *, needs: Sequence[Process], deadline_s: float) -> float:
    """Seconds until the condition held. Raises LabError with the end of a log when a needed process died or the time is up."""
    began = time.monotonic()
    ended: list[Process] = []

    def decided() -> bool:
        ended[:] = [process for process in needs if not process.alive()]
        return bool(ended) or condition()

    if not wait_until(decided, deadline_s=deadline_s):
        raise LabError(_failure(f"{what}: not within {deadline_s:.0f} s", needs))
    if ended:
        raise LabError(_failure(f"{what}: {', '.join(process.name for process in ended)} ended", ended))
    return time.monotonic() - began


def _failure(fact: str, processes: Sequence[Process]) -> str:
    logs = [f"--- the end of {process.log}:\n{log_tail(process)}" for process in processes]
    return "\n".join([fact, *logs, _ADVICE])
