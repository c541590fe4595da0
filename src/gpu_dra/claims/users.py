"""Evidence on the host that a container still has a claim's devices.

Every container has a mount namespace with a `/dev` of its own, in which CDI made the claim's nodes. So one process of each mount namespace
is asked, through `/proc/<pid>/root`, whether those nodes are there. Two kinds of look-alikes are told apart: a service that shares the
host's `/dev` (systemd's PrivateTmp), and a privileged pod, which gets every node of the host but no driver libraries mounted by CDI.

What cannot be looked into counts as a user, and so does a pod that reaches the same GPU through another claim (adminAccess): the claim
is then kept longer than needed, never shorter. Needs the host's `/proc` and CAP_SYS_PTRACE.
"""

from __future__ import annotations

import os
import re
import stat
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from gpu_dra.hardware.host import HostPaths
    from gpu_dra.model.prepared import PreparedClaim

_DRIVER_LIBRARIES: Final = (b"libcuda.so", b"libnvidia-ml.so")
"""Every container with a GPU has one of them as a mount point, whether CDI or the legacy runtime put it there."""

_CAPABILITY: Final = re.compile(r"/dev/nvidia-caps/nvidia-cap\d+")
_WHOLE_GPU: Final = re.compile(r"gpu-(?P<minor>\d+)")


class ContainerUsers:
    """Looks through the host's processes. Blocking; a few microseconds a process."""

    def __init__(self, host: HostPaths, *, boot_id: str) -> None:
        self._host = host
        self._boot_id = boot_id

    def in_use(self, claim: PreparedClaim) -> str | None:
        """Who uses the claim's devices, for the log; None when nobody does."""
        if claim.boot_id not in ("", self._boot_id):
            return None  # no container has lived through the reboot, and none has started since without a new prepare
        nodes = own_nodes(claim)
        try:
            host_dev = _identity(self._host.dev)
            processes = list(self._processes())
        except OSError as error:
            return f"a process that cannot be found: {error.filename}: {error.strerror}"
        seen: set[str] = set()
        for process in processes:
            try:
                namespace = os.readlink(process / "ns/mnt")  # noqa: PTH115 - text such as mnt:[4026531841], not a path
                if namespace in seen:
                    continue
                if _identity(process / "root/dev") != host_dev and self._has(process, nodes):
                    return f"pid {process.name}"
                seen.add(namespace)
            except (FileNotFoundError, ProcessLookupError, NotADirectoryError):
                continue  # ended meanwhile, or has no /dev
            except OSError as error:
                return f"pid {process.name}, which cannot be looked into: {error.strerror}"
        return None

    def _processes(self) -> Iterator[Path]:
        return (entry for entry in self._host.proc.iterdir() if entry.name.isdigit())

    def _has(self, process: Path, nodes: tuple[str, ...]) -> bool:
        if not any(self._is_same_node(process / "root" / node.removeprefix("/"), node) for node in nodes):
            return False
        with (process / "mountinfo").open("rb") as mounts:  # a path may hold any bytes
            return any(line.split()[4].rpartition(b"/")[2].startswith(_DRIVER_LIBRARIES) for line in mounts)

    def _is_same_node(self, inside: Path, node: str) -> bool:
        found = _device_number(inside)
        on_host = _device_number(self._host.dev / node.removeprefix("/dev/"))
        return found is not None and on_host in (None, found)


def _identity(directory: Path) -> tuple[int, int]:
    state = directory.stat()
    return state.st_dev, state.st_ino


def _device_number(path: Path) -> int | None:
    """The number of a character device; None when there is no such node. Raises OSError when that cannot be told."""
    try:
        state = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return state.st_rdev if stat.S_ISCHR(state.st_mode) else None


def own_nodes(claim: PreparedClaim) -> tuple[str, ...]:
    """Container paths of the nodes that tell this claim's devices from others': the GPU's, or a MIG device's capabilities.

    A MIG device's parent node and the control nodes are in the containers of others too.
    """
    whole = (_WHOLE_GPU.fullmatch(device.device) for device in claim.devices)
    capabilities = (match.group() for match in map(_CAPABILITY.search, claim.node_paths) if match)
    return (*(f"/dev/nvidia{match['minor']}" for match in whole if match), *capabilities)
