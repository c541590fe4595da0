"""A lab: bring it up, use it, take it down. What `hack/cluster` does from the command line, tests do through this class.

    lab = Lab.up(Wishes(name="t137", nodes=(NodeSpec(name="node-a", profile="h100x8"),)))
    lab.kubectl("apply", "-f", "-", stdin=manifest)
    lab.node_exec("node-a", "nvidia-smi", "-L")
    lab.start_in_node("node-a", "driver", [python, "-m", "gpu_dra", "node", …])
    lab.down()

`up` starts only what is missing, so it also mends. It returns when every node is Ready and pods can be created.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from hack.testbed import images
from hack.testbed.cluster import control_plane, host, network, pki, processes, teardown
from hack.testbed.cluster.addresses import Addresses, choose_index
from hack.testbed.cluster.api import Api
from hack.testbed.cluster.bootstrap import Toolbox, toolbox
from hack.testbed.cluster.cache import cache_folder
from hack.testbed.cluster.errors import LabError, Say, say_on_stderr
from hack.testbed.cluster.folder import LabFolder, LabState, held_indices, load_state, locked_lab, locked_labs, save_state
from hack.testbed.cluster.node import CONTAINERD, INIT, KUBELET, Node
from hack.testbed.cluster.place import check_place
from hack.testbed.cluster.processes import Process, Start
from hack.testbed.cluster.spec import LabSpec, Wishes, settle
from hack.testbed.cluster.waiting import wait_for
from hack.testbed.mock_host import HostTree
from hack.testbed.mock_nvml import MockNvml


@dataclass(frozen=True, slots=True, kw_only=True)
class Lab:
    """A lab that exists, running or not."""

    folder: LabFolder
    state: LabState
    toolbox: Toolbox
    say: Say

    @classmethod
    def up(cls, wishes: Wishes, *, say: Say = say_on_stderr) -> Self:
        """Bring a lab up, or what is missing of it: seconds, but minutes where the tools are not built yet. Raises LabError."""
        require_root()
        folder = LabFolder.of(wishes.name)
        check_place(folder.path, Path("/proc/self/mountinfo").read_text())
        tools = toolbox(settle(wishes, _existing(folder)).kubernetes, say=say)
        with locked_lab(folder):
            lab = cls(folder=folder, state=_state(folder, wishes), toolbox=tools, say=say)
            lab._start()
        return lab

    @classmethod
    def open(cls, name: str, *, say: Say = say_on_stderr) -> Self:
        """A lab that was brought up earlier. Raises LabError when there is none."""
        require_root()
        folder = LabFolder.of(name)
        state = load_state(folder)
        if state is None:
            raise LabError(f"there is no lab {name}; start it: hack/cluster up --name {name}")
        return cls(folder=folder, state=state, toolbox=toolbox(state.spec.kubernetes, say=say), say=say)

    def down(self) -> None:
        """Remove everything of the lab. Raises LabError naming what could not be removed."""
        teardown.down(self.state.spec.name, say=self.say)

    @property
    def kubeconfig(self) -> Path:
        """An administrator's."""
        return self.folder.kubeconfig(pki.ADMIN.file)

    @property
    def server(self) -> str:
        """URL of the API server, for this machine and for nodes and pods alike."""
        return f"https://{self.state.addresses.gateway}:6443"

    @property
    def nodes(self) -> list[Node]:
        return [self.node(node.name) for node in self.state.spec.nodes]

    def node(self, name: str) -> Node:
        """Raises LabError when there is no such node."""
        self.state.spec.node(name)
        return Node(name=name, folder=self.folder, state=self.state, toolbox=self.toolbox, say=self.say)

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        """Standard output of kubectl as administrator. Raises LabError with what it said."""
        command = [self.toolbox["kubectl"], f"--kubeconfig={self.kubeconfig}", *arguments]
        done = subprocess.run(command, input=stdin, env=self.toolbox.environment, check=False, capture_output=True, text=True)
        if done.returncode != 0:
            raise LabError(f"kubectl {' '.join(arguments)}: {done.stderr.strip()}")
        return done.stdout

    def node_exec(self, node: str, *command: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
        """Run a command inside a node and wait for it; its status is the caller's to read. Raises LabError when the node is off."""
        return subprocess.run(self.node(node).enter_command(*command), input=stdin, check=False, capture_output=True, text=True)

    def start_in_node(
        self,
        node: str,
        name: str,
        command: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        directory: Path = Path("/"),
        log: Path | None = None,
    ) -> Process:
        """Run a command inside a node in the background, under a name; with the caller's environment unless one is given."""
        wanted = Start(
            name=name,
            command=tuple(command),
            environment=dict(os.environ) if environment is None else environment,
            directory=str(directory),
            log=log,
        )
        return self.node(node).start(wanted)

    def stop_in_node(self, node: str, name: str, *, number: int = signal.SIGTERM, grace_s: float = 10) -> None:
        """Signal a process started by `start_in_node` and wait for its end, with SIGKILL after `grace_s`. Raises LabError."""
        process = self.node(node).component(name)
        if process is None:
            raise LabError(f"nothing named {name} runs on {node}")
        processes.stop(process, number=number, grace_s=grace_s)

    def machine(self, node: str) -> MockNvml:
        """The mocked GPUs of a node, to partition and to break them. Raises LabError when it has none."""
        return host.mock_of(self.host_tree(node))

    def host_tree(self, node: str) -> HostTree:
        """The mocked host of a node; `sync` it after its partitions changed. Raises LabError when it has none."""
        return HostTree.open(self.folder.node(node).host_tree)

    def load_image(self, archive: Path) -> None:
        """Import an image archive on every node. Raises LabError."""
        for node in self.nodes:
            node.load_image(archive)

    def reboot(self, name: str) -> None:
        """Pull the plug of a node and boot it; returns when the API server has seen the new boot. Raises LabError."""
        with locked_lab(self.folder):
            node = self.node(name)
            node.power_off()
            self._boot(node)
            node.ensure_kubelet()
            self._await_nodes([node])

    def restart_kubelet(self, name: str) -> None:
        """Restart the kubelet of a node; its pods go on. Raises LabError."""
        self.node(name).restart_kubelet()

    def stop_apiserver(self) -> None:
        """Take the API server away at once, as a crash does, until `start_apiserver` or `up`."""
        process = processes.running(self.folder, control_plane.APISERVER)
        if process is not None:
            processes.kill([process])

    def start_apiserver(self) -> None:
        """Start the API server if it is not running, and wait until it is ready. Raises LabError."""
        self._ensure(control_plane.APISERVER)
        self._await_apiserver()

    def api(self) -> Api:
        """As administrator."""
        return Api.from_kubeconfig(self.kubeconfig)

    def _start(self) -> None:
        spec = self.state.spec
        self.say(f"lab {spec.name}: Kubernetes {spec.kubernetes}, nodes {', '.join(map(str, spec.nodes))}, in {self.folder.path}")
        archives = list(images.build(cache_folder() / "images", say=self.say).values())
        pki.ensure(self.folder, self.state)
        network.ensure_bridge(self.state.addresses)
        with ThreadPoolExecutor() as pool:
            # While the API server starts, which takes longest, nodes boot and load their images.
            booting = [pool.submit(self._boot, node, archives) for node in self.nodes]
            self._ensure(control_plane.ETCD)
            self.start_apiserver()
            self.say("API server is ready")
            for boot in booting:
                boot.result()
            self.say("nodes are booted, starting kubelets")
        self._ensure(control_plane.CONTROLLER_MANAGER)
        self._ensure(control_plane.SCHEDULER)
        for node in self.nodes:
            node.ensure_kubelet()
        self._await_nodes(self.nodes)
        needs = self._processes(control_plane.CONTROLLER_MANAGER)
        wait_for("default service account", self.api().has_default_service_account, needs=needs, deadline_s=60)
        self.say(f"lab {spec.name} is up: {self.server}, kubeconfig {self.kubeconfig}")

    def _boot(self, node: Node, archives: Sequence[Path] = ()) -> None:
        node.ensure_on()
        node.ensure_runtime(list(archives))

    def _ensure(self, component: str) -> None:
        if processes.running(self.folder, component) is None:
            command = control_plane.commands(self.folder, self.state, self.toolbox)[component]
            processes.start(self.folder, Start(name=component, command=command, environment=self.toolbox.environment))

    def _await_apiserver(self) -> None:
        needs = self._processes(control_plane.ETCD, control_plane.APISERVER)
        wait_for("API server", self.api().ready, needs=needs, deadline_s=120)

    def _await_nodes(self, nodes: Sequence[Node]) -> None:
        """Until each is Ready in its present boot: the condition of the last boot stays True for a while."""
        api = self.api()

        def ready() -> bool:
            return {node.name for node in nodes} <= api.ready_nodes() and all(
                api.boot_id(node.name) == node.boot_id for node in nodes
            )

        needs = self._processes(*(f"{node.name}.{part}" for node in nodes for part in (INIT, CONTAINERD, KUBELET)))
        wait_for("nodes Ready", ready, needs=needs, deadline_s=120)

    def _processes(self, *names: str) -> list[Process]:
        return [process for name in names if (process := processes.recorded(self.folder, name)) is not None]


def require_root() -> None:
    """Raises LabError."""
    if os.geteuid() != 0:
        raise LabError("namespaces, mounts and network links need root; run it with sudo")


def _existing(folder: LabFolder) -> LabSpec | None:
    state = load_state(folder)
    return None if state is None else state.spec


def _state(folder: LabFolder, wishes: Wishes) -> LabState:
    """The lab's state, chosen and remembered now if it is new. The lab is locked."""
    state = load_state(folder)
    spec = settle(wishes, None if state is None else state.spec)
    if state is not None:
        return state
    with locked_labs():
        index = choose_index(spec.name, held=held_indices(but=folder), routes=network.machine_routes())
        state = LabState(spec=spec, addresses=Addresses(lab=spec.name, index=index))
        save_state(folder, state)
    return state
