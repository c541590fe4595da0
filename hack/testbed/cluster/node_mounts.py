"""Which mounts make a mount namespace a machine of its own. Pure: returns argument vectors, in order; `node_init` runs them.

| place | what | survives a reboot |
|---|---|---|
| `/etc`, `/opt`, `/var/lib`, `/var/log` | overlay: the machine's, plus what the node wrote | yes |
| `/var/lib/kubelet` (shared propagation), `/var/lib/containerd` | the node's own folders | yes |
| `/run` | tmpfs | no |
| `/dev` | tmpfs with the standard nodes | no |
| `/proc` | the node's own processes; boot id of its own | no |

Everything else is the machine's, programs and the checkout included, and no mount point is left on the machine.
"""

from __future__ import annotations

from pathlib import Path

Command = tuple[str, ...]

OVERLAID = ("/etc", "/opt", "/var/lib", "/var/log")
OWN = ("/var/lib/kubelet", "/var/lib/containerd")
BOOT_ID = "/proc/sys/kernel/random/boot_id"

# Name, major, minor: Documentation/admin-guide/devices.txt. kmsg is what the kubelet watches for out-of-memory kills.
_DEVICES = (
    ("null", 1, 3),
    ("zero", 1, 5),
    ("full", 1, 7),
    ("random", 1, 8),
    ("urandom", 1, 9),
    ("kmsg", 1, 11),
    ("tty", 5, 0),
    ("fuse", 10, 229),
)
_DEVICE_LINKS = {
    "fd": "/proc/self/fd",
    "stdin": "/proc/self/fd/0",
    "stdout": "/proc/self/fd/1",
    "stderr": "/proc/self/fd/2",
    "ptmx": "pts/ptmx",
}


def plan(node: Path) -> list[Command]:
    """All commands for the node whose folder is `node`."""
    return [
        ("mount", "--make-rprivate", "/"),
        ("mount", "-t", "proc", "-o", "nosuid,nodev,noexec", "proc", "/proc"),
        *_overlays(node),
        *_own_folders(node),
        ("mount", "-t", "tmpfs", "-o", "mode=755", "run", "/run"),
        ("mkdir", "-p", "/run/lock", "/run/cdi"),
        *_devices(node / "dev"),
        ("mount", "--bind", f"{node}/boot-id", BOOT_ID),
    ]


def folders(node: Path) -> list[Path]:
    """Folders that the commands expect."""
    layers = [node / kind / _flat(path) for path in OVERLAID for kind in ("upper", "work")]
    return [*layers, *(node / _flat(path) for path in OWN), node / "dev"]


def _overlays(node: Path) -> list[Command]:
    return [
        (
            *("mount", "-t", "overlay", "-o"),
            f"lowerdir={path},upperdir={node}/upper/{_flat(path)},workdir={node}/work/{_flat(path)}",
            *("overlay", path),
        )
        for path in OVERLAID
    ]


def _own_folders(node: Path) -> list[Command]:
    binds = [command for path in OWN for command in (("mkdir", "-p", path), ("mount", "--bind", f"{node}/{_flat(path)}", path))]
    # Bidirectional mounts of pods, such as a driver container's, must reach the kubelet's folder and come back out of it.
    return [*binds, ("mount", "--make-shared", "/var/lib/kubelet")]


def _devices(made: Path) -> list[Command]:
    return [
        ("mount", "-t", "tmpfs", "-o", "mode=755", "dev", str(made)),
        *(("mknod", "-m", "666", f"{made}/{name}", "c", str(major), str(minor)) for name, major, minor in _DEVICES),
        *(("ln", "-s", target, f"{made}/{name}") for name, target in _DEVICE_LINKS.items()),
        ("mkdir", *(f"{made}/{name}" for name in ("pts", "shm", "mqueue"))),
        ("mount", "-t", "devpts", "-o", "newinstance,ptmxmode=0666,mode=620,gid=5", "devpts", f"{made}/pts"),
        ("mount", "-t", "tmpfs", "-o", "mode=1777", "shm", f"{made}/shm"),
        ("mount", "-t", "mqueue", "mqueue", f"{made}/mqueue"),
        ("mount", "--move", str(made), "/dev"),
    ]


def _flat(path: str) -> str:
    return path.strip("/").replace("/", "-")
