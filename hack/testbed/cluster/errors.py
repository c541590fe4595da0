"""The one error of the test bed, and the way progress is told."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

Say = Callable[[str], None]
"""Tells a person one line about what is going on."""

_started = time.monotonic()


class LabError(Exception):
    """Something a person has to act on; the message names the object, the fact and the way out."""


def say_on_stderr(line: str) -> None:
    """One line with the seconds since the program began, so that standard output stays for results."""
    print(f"{time.monotonic() - _started:6.1f}s  {line}", file=sys.stderr, flush=True)
