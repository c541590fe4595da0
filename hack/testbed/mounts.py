"""Which mounts make a laid host tree the machine's own, inside one private mount namespace.

`plan` is pure and returns argument vectors for mount(8), cp(1), mkdir(1); `look` and `refuse_public_namespace` read this machine.
The commands never touch the machine outside the namespace: every mount point exists already or lies in the tree itself.

- `/proc/driver` and `/proc/devices` are plain binds.
- sysfs takes no new directories, so `/sys/devices` becomes the tree's, with each directory of the real one bound back in;
  the links of `/sys/bus/pci/devices` then resolve as on hardware. `/sys/module` is a read-only overlay of both, since its
  hundreds of directories would each cost a mount.
- `/dev` becomes the tree's, filled with copies of the machine's nodes; a node made there stays in the tree.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hack.testbed.cluster.errors import LabError

if TYPE_CHECKING:
    from collections.abc import Sequence

Command = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RealHost:
    """What the machine has below the directories that the tree covers, and is to be kept."""

    sys_devices: Sequence[str]
    """Directory names in `/sys/devices`."""
    dev_mounts: Sequence[str]
    """Mount points below `/dev`, relative to it, such as `pts` and `shm`."""


def look(tree: Path) -> RealHost:
    """Read what is to be kept. A PCIe root that the tree has too is the tree's."""
    covered = {directory.name for directory in (tree / "sys/devices").iterdir() if any(directory.iterdir())}
    devices = sorted(path.name for path in Path("/sys/devices").iterdir() if path.is_dir() and path.name not in covered)
    mounted = {mount.point for mount in _mounts() if mount.point.is_relative_to("/dev")} - {Path("/dev")}
    outermost = (point for point in mounted if point.is_dir() and not mounted & set(point.parents))
    return RealHost(sys_devices=devices, dev_mounts=sorted(str(point.relative_to("/dev")) for point in outermost))


def refuse_public_namespace() -> None:
    """Raise LabError unless mounts made now stay with this process and its children."""
    advice = "run it below `unshare --mount --propagation private`"
    if _machines_own_namespace():
        raise LabError(f"this is the machine's own mount namespace and its /dev would be covered: {advice}")
    public = [str(mount.point) for mount in _mounts() if mount.shared and str(mount.point) in {"/", "/dev", "/proc", "/sys"}]
    if public:
        raise LabError(f"mounts on {', '.join(public)} are shared with other mount namespaces: {advice}")


def _machines_own_namespace() -> bool:
    """Whether process 1 has the same mounts. A sandbox may forbid the look; it is no machine that anybody logs in to."""
    try:
        return Path("/proc/self/ns/mnt").readlink() == Path("/proc/1/ns/mnt").readlink()
    except PermissionError:
        return False


def plan(tree: Path, *, real: RealHost, driver_root: Path, kernel_tree: str) -> list[Command]:
    """Commands, in order, that put the tree at `tree` in place; its driver root appears at `driver_root`, with `kernel_tree` in it."""
    return [
        ("mount", "--bind", f"{tree}/proc/driver", "/proc/driver"),
        ("mount", "--bind", f"{tree}/proc/devices", "/proc/devices"),
        *_sys(tree, real.sys_devices),
        *_dev(tree, real.dev_mounts),
        ("mkdir", "-p", str(driver_root)),
        ("mount", "--bind", f"{tree}/root", str(driver_root)),
        ("mount", "--bind", f"{tree}/proc/driver/nvidia", f"{driver_root}/{kernel_tree}"),
    ]


def _sys(tree: Path, kept: Sequence[str]) -> list[Command]:
    real = f"{tree}/machine/sys-devices"
    return [
        ("mkdir", "-p", real, *(f"{tree}/sys/devices/{name}" for name in kept)),
        ("mount", "--rbind", "/sys/devices", real),
        ("mount", "--bind", f"{tree}/sys/devices", "/sys/devices"),
        *(("mount", "--rbind", f"{real}/{name}", f"/sys/devices/{name}") for name in kept),
        ("umount", "--lazy", real),
        ("mount", "--bind", f"{tree}/sys/bus/pci/devices", "/sys/bus/pci/devices"),
        ("mount", "-t", "overlay", "-o", f"ro,lowerdir={tree}/sys/module:/sys/module", "overlay", "/sys/module"),
    ]


def _dev(tree: Path, kept: Sequence[str]) -> list[Command]:
    real = f"{tree}/machine/dev"
    return [
        ("mkdir", "-p", real),
        ("mount", "--rbind", "/dev", real),
        # One file system only: what is mounted below /dev is bound, not copied. Nodes of the tree win over the machine's.
        ("cp", "-a", "--one-file-system", "--no-clobber", f"{real}/.", f"{tree}/dev"),
        ("mount", "--bind", f"{tree}/dev", "/dev"),
        # The tree may lie on a file system mounted nodev, as /tmp often is; its device nodes must open all the same.
        ("mount", "-o", "remount,bind,dev", "/dev"),
        *(("mount", "--rbind", f"{real}/{name}", f"/dev/{name}") for name in kept),
        ("umount", "--lazy", real),
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Mount:
    point: Path
    shared: bool


def _mounts() -> list[_Mount]:
    """The mount table of this process (proc(5), `/proc/self/mountinfo`)."""
    lines = (line.split() for line in Path("/proc/self/mountinfo").read_text().splitlines())
    return [
        _Mount(point=Path(fields[4]), shared=any(tag.startswith("shared:") for tag in fields[6 : fields.index("-")]))
        for fields in lines
    ]
