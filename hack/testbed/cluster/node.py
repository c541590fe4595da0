"""One node: its namespaces, its network, its runtime and its kubelet. Each `ensure_` starts only what is not there.

Its first process (`node_init`) holds the namespaces; power off means to kill that process, and the kernel ends everything else.
"""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hack.testbed.cluster import cgroups, host, network, node_files, processes
from hack.testbed.cluster.bootstrap import Toolbox
from hack.testbed.cluster.errors import LabError, Say
from hack.testbed.cluster.folder import LabFolder, LabState, write_json
from hack.testbed.cluster.processes import Process, Start
from hack.testbed.cluster.waiting import wait_for

INIT: Final = "init"
CONTAINERD: Final = "containerd"
KUBELET: Final = "kubelet"
PROXY: Final = "kube-proxy"
COMPONENTS: Final = (INIT, CONTAINERD, PROXY, KUBELET)

_INIT_PROGRAM = Path(__file__).with_name("node_init.py")
_KUBELET_PORT = 10250


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node of a lab, powered on or not."""

    name: str
    folder: LabFolder
    state: LabState
    toolbox: Toolbox
    say: Say

    @property
    def ordinal(self) -> int:
        return self.state.spec.ordinal(self.name)

    @property
    def address(self) -> str:
        return str(self.state.addresses.node(self.ordinal))

    @property
    def boot_id(self) -> str:
        """Of the present boot, or the last. Raises OSError when it never booted."""
        return self.folder.node(self.name).boot_id.read_text().strip()

    def component(self, name: str) -> Process | None:
        """A process of the node if it is alive."""
        return processes.running(self.folder, f"{self.name}.{name}")

    def init(self) -> Process:
        """The node's first process. Raises LabError when the node is off."""
        init = self.component(INIT)
        if init is None:
            raise LabError(f"node {self.name} is off; start it: hack/cluster up --name {self.state.spec.name}")
        return init

    def ensure_on(self) -> None:
        """Boot the node if it is off. Raises LabError."""
        if self.component(INIT) is None:
            self._boot()
        network.ensure_connected(self.state.addresses, self.ordinal, init=self.init().pid, nodes=len(self.state.spec.nodes))

    def _boot(self) -> None:
        mine = self.folder.node(self.name)
        mine.path.mkdir(parents=True, exist_ok=True)
        mine.ready.unlink(missing_ok=True)
        network.disconnect(self.state.addresses, self.ordinal)
        self._clear_groups()
        tree = host.boot(self.state.spec.node(self.name), lab=self.state.spec.name, into=mine.host_tree, say=self.say)
        files = node_files.files(self.folder, self.state, self.name)
        write_json(
            mine.request, {"name": self.name, "folder": str(mine.path), "files": files, "host_tree": str(tree) if tree else None}
        )
        init = self._start(INIT, sys.executable, "-I", str(_INIT_PROGRAM), str(mine.request), unshare=True)
        wait_for(f"booting {self.name}", mine.ready.exists, needs=[init], deadline_s=60)

    def _clear_groups(self) -> None:
        # What an earlier boot left: its processes are dead, its groups are not.
        cgroups.remove(self.state.spec.name, self.name)
        cgroups.make(self.state.spec.name, self.name)

    def ensure_runtime(self, images: Sequence[Path]) -> None:
        """Start containerd and load those of the images that were not loaded yet; they outlive a boot. Raises LabError."""
        containerd = self.component(CONTAINERD) or self._start(CONTAINERD, self.toolbox[CONTAINERD])
        wait_for(f"containerd of {self.name}", self._runtime_answers, needs=[containerd], deadline_s=60)
        loaded = self.folder.node(self.name).images_loaded
        known = loaded.read_text().splitlines() if loaded.exists() else []
        for image in images:
            if str(image) not in known:
                self.load_image(image)
                known.append(str(image))
                loaded.write_text("\n".join(known))

    def _runtime_answers(self) -> bool:
        # Through /proc, since the socket exists in the node's own file system only.
        path = f"/proc/{self.init().pid}/root{node_files.CONTAINERD_SOCKET}"
        with socket.socket(socket.AF_UNIX) as probe, contextlib.suppress(OSError):
            probe.connect(path)
            return True
        return False

    def ensure_kubelet(self) -> None:
        """Start kubelet and kube-proxy; whether the node becomes Ready is the API server's to say."""
        if self.component(PROXY) is None:
            self._start(PROXY, self.toolbox[PROXY], *node_files.PROXY_ARGUMENTS)
        if self.component(KUBELET) is None:
            self._start(KUBELET, self.toolbox[KUBELET], *node_files.kubelet_arguments(self.state, self.name))

    def restart_kubelet(self) -> None:
        """Stop the kubelet and start it; pods go on. Raises LabError."""
        kubelet = self.component(KUBELET)
        if kubelet is not None:
            processes.stop(kubelet, grace_s=10)
        self.init()
        self.ensure_kubelet()
        wait_for(f"kubelet of {self.name}", self._kubelet_listens, needs=self._alive(KUBELET), deadline_s=60)

    def _kubelet_listens(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection((self.address, _KUBELET_PORT), timeout=1):
            return True
        return False

    def power_off(self) -> None:
        """Pull the plug: every process, mount and interface of the node is gone; its folders stay. Nothing when it is off."""
        init = self.component(INIT)
        if init is not None:
            processes.kill([init])
        network.disconnect(self.state.addresses, self.ordinal)

    def load_image(self, archive: Path) -> None:
        """Import an OCI or Docker archive. Raises LabError."""
        # From standard input: the archive may lie where the node has a file system of its own.
        command = self.enter_command(self.toolbox["ctr"], "--namespace=k8s.io", "images", "import", "--local", "-")
        with archive.open("rb") as content:
            done = subprocess.run(command, stdin=content, check=False, capture_output=True, text=True)
        if done.returncode != 0:
            raise LabError(f"{self.name} cannot load {archive}: {done.stderr.strip()}")

    def enter_command(self, *command: str) -> list[str]:
        """The command line that runs `command` inside the node. Raises LabError when the node is off."""
        namespaces = ("--mount", "--net", "--pid", "--ipc", "--uts")
        return ["nsenter", "--target", str(self.init().pid), *namespaces, "--", *command]

    def start(self, wanted: Start) -> Process:
        """Start a process of the caller's inside the node, in the background. Raises LabError when one of that name runs."""
        if wanted.name in COMPONENTS:
            raise LabError(f"{wanted.name} is the name of a part of the node; choose another")
        if self.component(wanted.name) is not None:
            raise LabError(f"{wanted.name} runs on {self.name} already; stop it first")
        return self._start(
            wanted.name, *wanted.command, environment=dict(wanted.environment), directory=wanted.directory, log=wanted.log
        )

    def _start(
        self,
        name: str,
        *command: str,
        unshare: bool = False,
        environment: dict[str, str] | None = None,
        directory: str = "/",
        log: Path | None = None,
    ) -> Process:
        return processes.start(
            self.folder,
            Start(
                name=f"{self.name}.{name}",
                command=command,
                environment=environment or self.toolbox.environment,
                enter=None if unshare else self.init().pid,
                unshare=unshare,
                directory=directory,
                log=log,
            ),
        )

    def _alive(self, *names: str) -> list[Process]:
        return [process for name in names if (process := self.component(name)) is not None]
