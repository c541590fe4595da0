"""Start one process in the background, in namespaces of its own or in those of a node, and record it before it runs.

A program of its own, run by `processes.start` with a JSON request on standard input, since entering a pid namespace takes effect for
children only and forking is not safe in a program with threads. It answers the process id as this machine sees it.
The child waits until its record is on disk, and gives up when the launcher dies first: no process ever runs without a record.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from typing import Any, NoReturn

CLONE_NEWNS = 0x00020000  # linux/sched.h
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000
NODE_NAMESPACES = CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWPID | CLONE_NEWNET

_libc = ctypes.CDLL(None, use_errno=True)


def main() -> None:
    request: dict[str, Any] = json.load(sys.stdin)
    log = os.open(request["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
    # Opened before the node is entered: there, /proc counts processes differently and the record's folder may not be in sight.
    proc, records = _directory("/proc"), _directory(request["records"])
    if request["enter"] is not None:
        _enter(request["enter"])
    elif request["unshare"]:
        _check(_libc.unshare(NODE_NAMESPACES), "unshare")
    released, release = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(release)
        _become(request, log, released)
    os.close(released)
    _record(request, pid, proc=proc, records=records)
    os.write(release, b"x")
    print(pid)


def _enter(pid: int) -> None:
    """Join all namespaces of a node's first process; one call since Linux 5.8."""
    _check(_libc.setns(os.pidfd_open(pid), NODE_NAMESPACES), "setns")


def _check(status: int, call: str) -> None:
    if status != 0:
        number = ctypes.get_errno()
        sys.exit(f"{call}: {os.strerror(number)}")


def _record(request: dict[str, Any], pid: int, *, proc: int, records: int) -> None:
    with os.fdopen(os.open(f"{pid}/stat", os.O_RDONLY, dir_fd=proc)) as stat:
        # The command name in parentheses may hold spaces; field 22, counted from 1, is the start in clock ticks (proc(5)).
        started = int(stat.read().rpartition(")")[2].split()[19])
    record = {"pid": pid, "started": started, **{name: request[name] for name in ("boot", "command", "log")}}
    temporary = f".{request['record']}.{pid}"
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600, dir_fd=records), "w") as file:
        json.dump(record, file)
    os.rename(temporary, request["record"], src_dir_fd=records, dst_dir_fd=records)


def _directory(path: str) -> int:
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def _become(request: dict[str, Any], log: int, released: int) -> NoReturn:
    if os.read(released, 1) != b"x":
        os._exit(1)
    os.setsid()
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    try:
        os.chdir(request["directory"])
        os.execvpe(request["command"][0], request["command"], request["environment"])
    except OSError as error:
        os.write(2, f"cannot start {request['command'][0]}: {error}\n".encode())
        os._exit(127)


if __name__ == "__main__":
    main()
