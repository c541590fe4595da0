"""What is there of a lab, as data for tests and as a table for people."""

from __future__ import annotations

from typing import Any

from hack.testbed.cluster import cgroups, control_plane, processes
from hack.testbed.cluster.folder import labs_folder
from hack.testbed.cluster.host import PRODUCT_FLAGS
from hack.testbed.cluster.lab import Lab
from hack.testbed.cluster.node import COMPONENTS, Node


def describe(lab: Lab) -> dict[str, Any]:
    """Everything a caller needs to use the lab; a component's process id is null when it does not run."""
    api = lab.api() if lab.kubeconfig.exists() else None
    ready = api.ready_nodes() if api else set()
    return {
        "name": lab.state.spec.name,
        "kubernetes": lab.state.spec.kubernetes,
        "cgroup_version": cgroups.version(cgroups.here()),
        "folder": str(lab.folder.path),
        "server": lab.server,
        "server_ready": api is not None and api.ready(),
        "kubeconfig": str(lab.kubeconfig),
        "kubectl": lab.toolbox["kubectl"],
        "tools": [str(folder) for folder in lab.toolbox.folders],
        "control_plane": {name: _pid(lab, name) for name in control_plane.PROGRAMS},
        "nodes": [_node(lab, node, ready=node.name in ready) for node in lab.nodes],
    }


def _node(lab: Lab, node: Node, *, ready: bool) -> dict[str, Any]:
    profile = lab.state.spec.node(node.name).profile
    folder = lab.folder.node(node.name)
    return {
        "name": node.name,
        "ready": ready,
        "address": node.address,
        "pods": str(lab.state.addresses.pods_of(node.ordinal)),
        "profile": profile,
        "folder": str(folder.path),
        "host_tree": str(folder.host_tree) if profile else None,
        "product_flags": list(PRODUCT_FLAGS) if profile else [],
        "processes": {name: _pid(lab, f"{node.name}.{name}") for name in COMPONENTS},
        "started": {name: _pid(lab, f"{node.name}.{name}") for name in _started(lab, node)},
    }


def _started(lab: Lab, node: Node) -> list[str]:
    """Names of what `start_in_node` started."""
    prefix = f"{node.name}."
    names = [process.name.removeprefix(prefix) for process in processes.all_recorded(lab.folder) if process.name.startswith(prefix)]
    return [name for name in names if name not in COMPONENTS]


def _pid(lab: Lab, name: str) -> int | None:
    process = processes.running(lab.folder, name)
    return process.pid if process else None


def healthy(status: dict[str, Any]) -> bool:
    """Whether nothing of the lab is missing."""
    nodes = status["nodes"]
    parts = [*status["control_plane"].values(), *(pid for node in nodes for pid in node["processes"].values())]
    return bool(status["server_ready"]) and all(node["ready"] for node in nodes) and all(parts)


def lines(status: dict[str, Any]) -> list[str]:
    """The same, for a person."""
    head = [
        f"lab         {status['name']}: Kubernetes {status['kubernetes']}, cgroup v{status['cgroup_version']}, {status['folder']}",
        f"API server  {status['server']} {'ready' if status['server_ready'] else 'NOT READY'}",
        f"kubeconfig  {status['kubeconfig']}",
    ]
    parts = [f"{name:<27}{_state(pid)}" for name, pid in status["control_plane"].items()]
    for node in status["nodes"]:
        machine = node["profile"] or "no GPUs"
        parts.append(
            f"{node['name']:<27}{'Ready' if node['ready'] else 'NOT READY'}  {node['address']}  pods {node['pods']}  {machine}"
        )
        parts += [f"  {name:<25}{_state(pid)}" for name, pid in {**node["processes"], **node["started"]}.items()]
    return [*head, *parts]


def _state(pid: int | None) -> str:
    return f"running ({pid})" if pid else "NOT RUNNING"


def names() -> list[str]:
    """Labs that exist."""
    return sorted(path.parent.name for path in labs_folder().glob("*/lab.json"))
