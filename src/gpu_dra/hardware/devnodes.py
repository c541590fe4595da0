"""Which device nodes a GPU or a MIG device needs, and make sure that they are there.

Majors come from `/proc/devices`, minors from the driver (sources: NVIDIA driver README, `nvidia-modprobe`, and for MIG the
`/proc/driver/nvidia/capabilities` tree); nothing is computed. `gpu_nodes`, `mig_nodes` and `control_nodes` decide, `ensure` acts.
Loads no kernel module and never replaces a node that somebody else made.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gpu_dra.core.errors import Broken, NotReady
from gpu_dra.hardware import procfs, sysfs

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gpu_dra.hardware.host import HostPaths
    from gpu_dra.model.gpu import Gpu
    from gpu_dra.model.mig import MigDevice

_FRONTEND_NAMES: Final = ("nvidia", "nvidia-frontend")
"""Name of the GPUs' major since and before driver 550.40."""
_CONTROL_MINOR, _MODESET_MINOR, _UVM_MINOR, _UVM_TOOLS_MINOR = 255, 254, 0, 1


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSpec:
    """A character device node as a container sees it."""

    path: str
    """In the container and on the host's own `/dev`: `/dev/nvidia0`."""
    major: int
    minor: int
    file_mode: int
    """Permission bits."""
    uid: int = 0
    gid: int = 0


def gpu_nodes(host: HostPaths, gpu: Gpu) -> tuple[NodeSpec, ...]:
    """What a whole GPU needs: `/dev/nvidia<minor>` and the DRM nodes it has. Raises NotReady when the driver is not loaded."""
    return (_gpu_node(host, gpu.minor), *drm_nodes(host, gpu))


def mig_nodes(host: HostPaths, gpu: Gpu, mig: MigDevice) -> tuple[NodeSpec, ...]:
    """What a MIG device needs: its GPU's node and the capabilities of its two instances; DRM nodes for a graphics profile.

    Raises NotReady when the driver is not loaded or does not know the instances (any more).
    """
    capabilities = (
        _capability_node(host, mig, compute_instance_id=None),
        _capability_node(host, mig, compute_instance_id=mig.compute_instance_id),
    )
    graphics = drm_nodes(host, gpu) if "+gfx" in mig.profile.name else ()
    return (_gpu_node(host, gpu.minor), *capabilities, *graphics)


def control_nodes(host: HostPaths) -> tuple[NodeSpec, ...]:
    """What every GPU container needs besides its GPUs. Raises NotReady when a kernel module that CUDA needs is not loaded."""
    majors = procfs.character_majors(host)
    frontend = _frontend_major(majors)
    uvm = _major(majors, "nvidia-uvm", wanted_for="/dev/nvidia-uvm")
    policy = procfs.device_file_policy(host)
    nodes = [_node(policy, "/dev/nvidiactl", frontend, _CONTROL_MINOR)]
    if "nvidia-modeset" in majors or (host.dev / "nvidia-modeset").exists():
        nodes.append(_node(policy, "/dev/nvidia-modeset", frontend, _MODESET_MINOR))
    nodes.append(_node(policy, "/dev/nvidia-uvm", uvm, _UVM_MINOR))
    nodes.append(_node(policy, "/dev/nvidia-uvm-tools", uvm, _UVM_TOOLS_MINOR))
    return tuple(nodes)


def drm_nodes(host: HostPaths, gpu: Gpu) -> tuple[NodeSpec, ...]:
    """The GPU's `/dev/dri` nodes that exist. They are udev's to make, so one that is missing is left out."""
    nodes = []
    for drm in sysfs.drm_devices(host, gpu.pci):
        with contextlib.suppress(OSError):
            found = (host.dev / "dri" / drm.name).stat()
            mode = stat.S_IMODE(found.st_mode)
            node = NodeSpec(
                path=f"/dev/dri/{drm.name}", major=drm.major, minor=drm.minor, file_mode=mode, uid=found.st_uid, gid=found.st_gid
            )
            nodes.append(node)
    return tuple(nodes)


def host_path(host: HostPaths, node: NodeSpec) -> Path:
    """Where this process finds the node."""
    return host.dev / Path(node.path).relative_to("/dev")


def ensure(host: HostPaths, nodes: Iterable[NodeSpec]) -> None:
    """Check that each node is there with the right numbers and make the missing ones. Blocking.

    Raises NotReady when one is missing and cannot be made, Broken when something else has its place.
    """
    for node in nodes:
        path = host_path(host, node)
        try:
            found = path.stat()
        except FileNotFoundError:
            _create(host, node, path)
        except OSError as error:
            raise NotReady(
                f"{node.path} cannot be checked at {path}: {error.strerror}; mount the host's /dev into the plugin"
            ) from error
        else:
            _check(node, path, found)


def _check(node: NodeSpec, path: Path, found: os.stat_result) -> None:
    if not stat.S_ISCHR(found.st_mode):
        raise Broken(f"{node.path} ({path}) is not a character device; remove it, and it will be made again")
    major, minor = os.major(found.st_rdev), os.minor(found.st_rdev)
    if (major, minor) != (node.major, node.minor):
        raise Broken(
            f"{node.path} ({path}) has device number {major}:{minor}, but the driver has {node.major}:{node.minor};"
            " it is left over from another driver: remove it, and it will be made again"
        )


def _create(host: HostPaths, node: NodeSpec, path: Path) -> None:
    if not procfs.device_file_policy(host).modify:
        raise NotReady(
            f"{node.path} is missing and the driver's parameter NVreg_ModifyDeviceFiles=0 forbids making it;"
            f" run `mknod -m {node.file_mode:o} {node.path} c {node.major} {node.minor}` on the host"
        )
    try:
        path.parent.mkdir(mode=0o755, exist_ok=True)
        _make_node(node, path)
    except OSError as error:
        raise NotReady(
            f"{node.path} is missing and could not be created at {path}: {error.strerror};"
            " mount the host's /dev into the plugin, writable, and give it CAP_MKNOD"
        ) from error


def _make_node(node: NodeSpec, path: Path) -> None:
    """Make the node beside its place and rename it, so that nobody sees it with other permissions, whatever the umask."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    os.mknod(temporary, stat.S_IFCHR, os.makedev(node.major, node.minor))
    try:
        os.chown(temporary, node.uid, node.gid)
        temporary.chmod(node.file_mode)
        temporary.replace(path)
    except BaseException:
        temporary.unlink()
        raise


def _gpu_node(host: HostPaths, minor: int) -> NodeSpec:
    major = _frontend_major(procfs.character_majors(host))
    return _node(procfs.device_file_policy(host), f"/dev/nvidia{minor}", major, minor)


def _capability_node(host: HostPaths, mig: MigDevice, *, compute_instance_id: int | None) -> NodeSpec:
    capability = procfs.mig_capability(
        host, gpu_minor=mig.parent_minor, gpu_instance_id=mig.gpu_instance_id, compute_instance_id=compute_instance_id
    )
    if capability is None:
        what = "GPU instance" if compute_instance_id is None else f"compute instance {compute_instance_id} of GPU instance"
        raise NotReady(
            f"{mig.name} ({mig.uuid}): the driver shows no capability of {what} {mig.gpu_instance_id};"
            " check that the partition still exists (nvidia-smi mig -lgi) and that the host's /proc is mounted"
        )
    path = f"/dev/nvidia-caps/nvidia-cap{capability.minor}"
    major = _major(procfs.character_majors(host), "nvidia-caps", wanted_for=path)
    return NodeSpec(path=path, major=major, minor=capability.minor, file_mode=capability.mode)


def _node(policy: procfs.DeviceFilePolicy, path: str, major: int, minor: int) -> NodeSpec:
    return NodeSpec(path=path, major=major, minor=minor, file_mode=policy.mode, uid=policy.uid, gid=policy.gid)


def _frontend_major(majors: Mapping[str, int]) -> int:
    for name in _FRONTEND_NAMES:
        if name in majors:
            return majors[name]
    return _major(majors, _FRONTEND_NAMES[0], wanted_for="/dev/nvidiactl")


def _major(majors: Mapping[str, int], name: str, *, wanted_for: str) -> int:
    if name not in majors:
        raise NotReady(f"{wanted_for} has no number: /proc/devices lists no {name}; run `modprobe {name}` on the host")
    return majors[name]
