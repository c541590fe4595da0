"""Run a system command and turn its failure into an error a person can read."""

from __future__ import annotations

import os
import subprocess

from hack.testbed.cluster.errors import LabError


def run(*command: str, stdin: str | None = None) -> str:
    """Standard output of a command that succeeded. Raises LabError with what it said on standard error."""
    done = attempt(*command, stdin=stdin)
    if done.returncode != 0:
        raise LabError(f"`{' '.join(command)}` failed with status {done.returncode}: {done.stderr.strip() or 'no message'}")
    return done.stdout


def attempt(*command: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    """The same, for a caller that reads the status itself. Raises LabError when there is no such program."""
    try:
        return subprocess.run(command, input=stdin, env=_environment(), check=False, capture_output=True, text=True)
    except FileNotFoundError as error:
        raise LabError(f"there is no program {command[0]}; run hack/bootstrap") from error


def _environment() -> dict[str, str]:
    """A root shell opened by `su` has no sbin on its PATH."""
    return {**os.environ, "PATH": f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"}
