"""The control groups that a lab's containers live in: `/gpu-dra/<lab>/<node>` in every hierarchy, version 1 and version 2.

The kubelet makes pod groups below a node's group; containers that outlive a crash are found there, and `down` removes the lot.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from hack.testbed.cluster.errors import LabError
from hack.testbed.cluster.processes import wait_until

_ROOT = "gpu-dra"
_MOUNTS = Path("/sys/fs/cgroup")
_KUBELET_CONTROLLERS = ("cpu", "cpuset", "hugetlb", "memory", "pids")
"""The kubelet asks in its root group for each of these that the machine has (source: pkg/kubelet/cm, getSupportedUnifiedControllers)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hierarchy:
    """One mounted cgroup tree."""

    path: Path
    version: int


def hierarchies(mountinfo: str) -> list[Hierarchy]:
    """The trees in a /proc/<pid>/mountinfo, below /sys/fs/cgroup."""
    found = []
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        kind, path = after.split()[0], Path(before.split()[4])
        if kind in {"cgroup", "cgroup2"} and path.is_relative_to(_MOUNTS):
            found.append(Hierarchy(path=path, version=2 if kind == "cgroup2" else 1))
    return found


def version(found: Iterable[Hierarchy]) -> int:
    """1 where any controller is in a version 1 tree (the hybrid layout counts as 1, as for the kubelet), else 2. Raises LabError."""
    versions = {hierarchy.version for hierarchy in found}
    if not versions:
        raise LabError(f"no cgroup file system below {_MOUNTS}; mount one, or start the container with its host's cgroups")
    return 1 if 1 in versions else 2


def here() -> list[Hierarchy]:
    """The trees of this machine."""
    return hierarchies(Path("/proc/self/mountinfo").read_text())


def group_of(lab: str, node: str) -> str:
    """A node's group as the kubelet's `cgroupRoot` names it."""
    return f"/{_ROOT}/{lab}/{node}"


def make(lab: str, node: str) -> None:
    """Create a node's group with the controllers the kubelet needs. Raises LabError."""
    found = here()
    unified = version(found) == 2
    for hierarchy in found:
        # The `down` of another lab may remove the common parent, while it is empty, under our hands.
        if not wait_until(partial(_made, hierarchy.path, (_ROOT, lab, node), unified=unified), deadline_s=10):
            raise LabError(
                f"control group {group_of(lab, node)} vanishes from {hierarchy.path} as fast as it is made; what removes it?"
            )


def _made(tree: Path, parts: Sequence[str], *, unified: bool) -> bool:
    with contextlib.suppress(FileNotFoundError):
        make_in(tree, parts, unified=unified)
        return True
    return False


def make_in(tree: Path, parts: Sequence[str], *, unified: bool) -> None:
    """Create the nested groups `parts` in one tree. Raises LabError."""
    controllers = (tree / "cgroup.controllers").read_text().split() if unified else []
    group = tree
    for part in parts:
        if unified:
            _hand_down(group, [name for name in _KUBELET_CONTROLLERS if name in controllers])
        group /= part
        group.mkdir(exist_ok=True)
        if not unified:
            _inherit_cpuset(group)


def remove(lab: str, node: str | None = None) -> None:
    """Remove the groups of a node or of the whole lab, once empty. Raises LabError when a process stays in one."""
    for hierarchy in here():
        lab_group = hierarchy.path / _ROOT / lab
        top = lab_group / node if node else lab_group
        if not wait_until(partial(_removed, top), deadline_s=10):
            raise LabError(
                f"control group {top} cannot be removed: {_members(top) or 'it is busy'}; end these processes, then run down again"
            )
        if node is None:
            with contextlib.suppress(OSError):  # other labs may still use it
                (hierarchy.path / _ROOT).rmdir()


def leftovers(lab: str) -> list[Path]:
    """Groups of the lab that exist."""
    return [path for hierarchy in here() if (path := hierarchy.path / _ROOT / lab).exists()]


def members(lab: str) -> set[int]:
    """Processes in any group of the lab."""
    return {pid for path in leftovers(lab) for pid in _members(path)}


def _hand_down(group: Path, controllers: Sequence[str]) -> None:
    try:
        (group / "cgroup.subtree_control").write_text(" ".join(f"+{name}" for name in controllers))
    except OSError as error:
        if error.errno == errno.EBUSY:
            raise LabError(
                f"{group} holds processes itself, so its controllers cannot be handed down; "
                "in a container, start it with the host's cgroup namespace (docker run --cgroupns=host)"
            ) from error
        raise LabError(f"the controllers {', '.join(controllers)} cannot be enabled below {group}: {error.strerror}") from error


def _inherit_cpuset(group: Path) -> None:
    """A new version 1 cpuset holds no CPU and no memory node, and takes no process."""
    for name in ("cpuset.cpus", "cpuset.mems"):
        file = group / name
        if file.exists() and not file.read_text().strip():
            inherited = (group.parent / name).read_text().strip()
            if inherited:
                file.write_text(inherited)


def _removed(top: Path) -> bool:
    for group in _groups(top):
        with contextlib.suppress(OSError):
            group.rmdir()
    return not top.exists()


def _members(top: Path) -> set[int]:
    found: set[int] = set()
    for group in _groups(top):
        with contextlib.suppress(OSError):
            found.update(int(line) for line in (group / "cgroup.procs").read_text().split())
    return found


def _groups(top: Path) -> Iterator[Path]:
    """A group and all below it, the deepest first."""
    for folder, _, _ in os.walk(top, topdown=False):
        yield Path(folder)
