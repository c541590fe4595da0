"""The processes of a lab: start, find again, stop. By process id and start time only, so that a reused id is never hit.

A process is found by its record or, when records are gone, by the lab's marker in its environment. What runs inside a node needs
neither: the kernel kills all of a pid namespace with its first process.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hack.testbed.cluster.errors import LabError
from hack.testbed.cluster.folder import LabFolder

_LAUNCHER = Path(__file__).with_name("launch.py")
_POLL_S = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """A process that was started, alive or not."""

    name: str
    pid: int
    started: int
    """Clock ticks after boot, as in /proc/<pid>/stat."""
    log: Path | None = None

    def alive(self) -> bool:
        """A zombie is dead: its parent may be slow to reap it."""
        return _start_if_running(self.pid) == self.started

    def send(self, number: int) -> None:
        """Send a signal; nothing happens when the process is gone."""
        with contextlib.suppress(ProcessLookupError):
            # The descriptor pins the process, so the check of its start time cannot be outrun by a reused id.
            descriptor = os.pidfd_open(self.pid)
            try:
                if self.alive():
                    signal.pidfd_send_signal(descriptor, number)
            finally:
                os.close(descriptor)


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """How to start a process."""

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str]
    enter: int | None = None
    """First process of the node to run in."""
    unshare: bool = False
    """Become the first process of a new node."""
    directory: str = "/"
    log: Path | None = None
    """Default: the lab's log of that name."""


def start(folder: LabFolder, wanted: Start) -> Process:
    """Start a process in the background, marked as the lab's and recorded. Raises LabError."""
    folder.processes.mkdir(exist_ok=True)
    folder.logs.mkdir(exist_ok=True)
    name, _, value = folder.marker.partition("=")
    request = {
        "records": str(folder.processes),
        "record": f"{wanted.name}.json",
        "boot": _boot_id(),
        "log": str(wanted.log or folder.log(wanted.name)),
        "command": wanted.command,
        "environment": {**wanted.environment, name: value},
        "enter": wanted.enter,
        "unshare": wanted.unshare,
        "directory": wanted.directory,
    }
    # Isolated and without site packages: 15 ms instead of 50.
    launcher = [sys.executable, "-I", "-S", str(_LAUNCHER)]
    done = subprocess.run(launcher, input=json.dumps(request), check=False, capture_output=True, text=True)
    if done.returncode != 0:
        raise LabError(f"could not start {wanted.name}: {done.stderr.strip()}")
    process = recorded(folder, wanted.name)
    if process is None:
        raise LabError(
            f"{wanted.name} was started but its record in {folder.processes} is gone; is another command at work on this lab?"
        )
    return process


def recorded(folder: LabFolder, name: str) -> Process | None:
    """The process of that name as last started; None when that was before the machine's last boot, or the record is damaged."""
    try:
        data: dict[str, Any] = json.loads((folder.processes / f"{name}.json").read_text())
        if data["boot"] != _boot_id():
            return None
        return Process(name=name, pid=data["pid"], started=data["started"], log=Path(data["log"]))
    except (OSError, ValueError, KeyError):
        return None


def running(folder: LabFolder, name: str) -> Process | None:
    """The process of that name if it is alive."""
    process = recorded(folder, name)
    return process if process is not None and process.alive() else None


def all_recorded(folder: LabFolder) -> list[Process]:
    names = sorted(path.stem for path in folder.processes.glob("[!.]*.json"))
    return [process for name in names if (process := recorded(folder, name)) is not None]


def marked(folder: LabFolder) -> list[Process]:
    """Every living process with the lab's marker, recorded or not, the caller and its ancestors apart."""
    mark, spared = folder.marker.encode(), _ancestry()
    entries = [entry for entry in Path("/proc").iterdir() if entry.name.isdecimal() and int(entry.name) not in spared]
    candidates = [by_id(int(entry.name)) for entry in entries if mark in _environment(entry)]
    return [process for process in candidates if process is not None]


def by_id(pid: int) -> Process | None:
    """The process that has this id now."""
    started = _start_if_running(pid)
    return None if started is None else Process(name=f"process {pid}", pid=pid, started=started)


def stop(process: Process, *, number: int = signal.SIGTERM, grace_s: float) -> None:
    """Signal, then SIGKILL when it is still there after `grace_s`. Raises LabError when even that does not end it."""
    process.send(number)
    if not wait_until(lambda: not process.alive(), deadline_s=grace_s):
        kill([process])


def kill(processes: Iterable[Process]) -> None:
    """SIGKILL, and wait for the end. Raises LabError naming those that stay."""
    victims = list(processes)
    for process in victims:
        process.send(signal.SIGKILL)
    if not wait_until(lambda: not any(process.alive() for process in victims), deadline_s=20):
        stuck = ", ".join(f"{process.name} ({process.pid})" for process in victims if process.alive())
        raise LabError(
            f"{stuck}: still there after SIGKILL, likely stuck in the kernel; see `cat /proc/PID/stack`, then run down again"
        )


def wait_until(condition: Callable[[], bool], *, deadline_s: float) -> bool:
    """Poll; False when the deadline came first."""
    end = time.monotonic() + deadline_s
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(_POLL_S)
    return True


def log_tail(process: Process, lines: int = 12) -> str:
    """The end of a process's log, for an error message."""
    if process.log is None or not process.log.exists():
        return "(no log)"
    return "\n".join(process.log.read_text(errors="replace").splitlines()[-lines:])


def _boot_id() -> str:
    """Start times count from the machine's boot, so they mean nothing after the next."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _start_if_running(pid: int) -> int | None:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] in {"Z", "X"} else int(fields[19])


def _environment(entry: Path) -> list[bytes]:
    try:
        return (entry / "environ").read_bytes().split(b"\0")
    except OSError:  # gone meanwhile, a kernel thread, or somebody else's
        return []


def _ancestry() -> set[int]:
    chain = {os.getpid()}
    pid = os.getppid()
    while pid > 0 and pid not in chain:
        chain.add(pid)
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return chain
