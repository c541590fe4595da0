"""Find out whether a node has NVIDIA GPUs, for next to nothing on the many nodes that have none.

The process that stays looks at sysfs and imports nothing but a little of the standard library. Who has something to tell the API server
is a child process that ends after it: an HTTP client that stays would cost three times as much as all the rest.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Final

from gpu_dra.hardware.host import HostPaths
from gpu_dra.hardware.sysfs import nvidia_gpus

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

LOOK_SECONDS: Final = 30.0
AGAIN_SECONDS: Final = 600.0
"""After which the label is compared anew, since people take labels away."""
RETRY_SECONDS: Final = 60.0
ABSENT_SECONDS: Final = 3600.0
"""For which no GPU must be seen before that is told. Without the label the plugin leaves the node, and claims there could not be
unprepared; a GPU that falls off the bus, or is reset by a remove and a rescan, is gone for a while only."""


def watch(
    sys_root: Path,
    *,
    tell: Callable[[bool], bool],
    stopped: Callable[[float], bool],
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Tell that there is a GPU at once, that there is none after an hour, and either again now and then.

    Ends when `stopped(seconds)` says so after waiting.
    `tell` returns False when it could not be told; it is tried again a minute later.
    """
    told: bool | None = None
    due = seen = clock()
    while True:
        now = clock()
        present = bool(nvidia_gpus(HostPaths(sys=sys_root)))
        seen = now if present else seen
        certain = present or now - seen >= ABSENT_SECONDS
        failed = False
        if certain and (present != told or now >= due):
            failed = not tell(present)
            told = None if failed else present
            due = now + AGAIN_SECONDS
        if stopped(RETRY_SECONDS if failed else LOOK_SECONDS):
            return


def tell_by_child(present: bool) -> bool:
    """Let a child process label the node; it has our environment and prints its own errors."""
    command = [sys.executable, "-m", "gpu_dra", "label-node", "--gpu-present", "true" if present else "false"]
    return subprocess.run(command, check=False).returncode == 0


def sleep_until_signal(seconds: float) -> bool:
    """Wait; True when SIGTERM or SIGINT came. Needs them blocked (`block_signals`)."""
    return signal.sigtimedwait(_SIGNALS, seconds) is not None


def block_signals() -> None:
    """Keep SIGTERM and SIGINT for `sleep_until_signal`; as process 1 of a container, SIGTERM would else be ignored."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)


_SIGNALS: Final = frozenset({signal.SIGTERM, signal.SIGINT})
