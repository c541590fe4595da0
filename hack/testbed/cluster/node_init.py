"""The first process of a node: furnishes its namespaces, then reaps what is left to it. When it dies, all of the node dies.

Started by `processes.start(unshare=True)` as `node_init.py REQUEST`, a JSON file. Writes the file `ready` when done; whatever goes
wrong before is in its log, and ends it.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any, NoReturn

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from hack.testbed.cluster import node_mounts
from hack.testbed.mock_host import HostTree


def main() -> NoReturn:
    request: dict[str, Any] = json.loads(Path(sys.argv[1]).read_text())
    node = Path(request["folder"])
    _furnish(node, request)
    _set_ready(node)
    _reap()


def _furnish(node: Path, request: dict[str, Any]) -> None:
    socket.sethostname(request["name"])
    for folder in node_mounts.folders(node):
        folder.mkdir(parents=True, exist_ok=True)
    (node / "boot-id").write_text(f"{uuid.uuid4()}\n")
    for command in node_mounts.plan(node):
        _run(command)
    if not Path("/var/run").is_symlink():
        _run(("mount", "--rbind", "/run", "/var/run"))
    for path, content in request["files"].items():
        _write(Path(path), content)
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
    if request["host_tree"] is not None:
        for command in HostTree.open(Path(request["host_tree"])).mount_commands():
            _run(command)
    _run(("mount", "--make-rshared", "/"))  # as on a machine with systemd; within this namespace, whose mounts began private


def _write(path: Path, content: str) -> None:
    """A file that is already there stays: what was changed on a node survives its reboot."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        path.write_text(content)


def _run(command: tuple[str, ...]) -> None:
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"`{' '.join(command)}` failed: {done.stderr.strip()}")


def _set_ready(node: Path) -> None:
    (node / "ready").touch()


def _reap() -> NoReturn:
    """Wait for orphans for ever; the kernel delivers no signal without a handler to the first process, so only SIGKILL ends it."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    while True:
        signal.sigwait({signal.SIGCHLD})
        _reap_dead()


def _reap_dead() -> None:
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return


if __name__ == "__main__":
    main()
