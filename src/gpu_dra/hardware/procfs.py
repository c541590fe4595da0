"""Read what the kernel and the NVIDIA driver say of themselves below `/proc`.

Sources: proc(5) and the driver's README, chapters on `/proc` interfaces and on `DeviceFile*` parameters. Blocking, each
call a small read. An absent file is an answer (the driver is not loaded, is older), so most functions return None for it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gpu_dra.core.errors import Broken

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from gpu_dra.hardware.host import HostPaths
    from gpu_dra.model.pci import PciAddress

_VERSION: Final = re.compile(r"Module\b.*?\s(\d+\.\d+(?:\.\d+)?)\s")
_CHARACTER_DEVICES: Final = re.compile(r"Character devices:\n(.*?)(?:\n\s*\n|\Z)", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceFilePolicy:
    """How the driver wants its device nodes (`DeviceFileUID`, `DeviceFileGID`, `DeviceFileMode`, `ModifyDeviceFiles`)."""

    modify: bool
    """False when an administrator keeps the nodes himself and nobody else should touch them."""
    uid: int
    gid: int
    mode: int


DRIVER_DEFAULT_POLICY: Final = DeviceFilePolicy(modify=True, uid=0, gid=0, mode=0o666)
"""What the driver uses where nobody set module parameters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capability:
    """A capability device of the driver: its minor number below the `nvidia-caps` major, and its permission bits."""

    minor: int
    mode: int


def driver_version(host: HostPaths) -> str | None:
    """Version of the loaded kernel module as it prints it (`580.126.09`); None when no module is loaded."""
    text = _text(host.proc / "driver/nvidia/version")
    match = _VERSION.search(text) if text is not None else None
    return match[1] if match else None


def device_minor(host: HostPaths, pci: PciAddress) -> int | None:
    """Minor number of a GPU's device node; None when the driver does not list the GPU."""
    minor = _fields(_text(host.proc / f"driver/nvidia/gpus/{pci}/information") or "").get("Device Minor", "")
    return int(minor) if minor.isdecimal() else None


def device_file_policy(host: HostPaths) -> DeviceFilePolicy:
    """The driver's wish for its device nodes; its defaults when the driver is not loaded or does not say."""
    path = host.proc / "driver/nvidia/params"
    fields = _fields(_text(path) or "")
    default = DRIVER_DEFAULT_POLICY
    return DeviceFilePolicy(
        modify=bool(_number(fields.get("ModifyDeviceFiles", str(int(default.modify))), path)),
        uid=_number(fields.get("DeviceFileUID", str(default.uid)), path),
        gid=_number(fields.get("DeviceFileGID", str(default.gid)), path),
        mode=_number(fields.get("DeviceFileMode", str(default.mode)), path),  # printed in decimal: 438 is 0666
    )


def character_majors(host: HostPaths) -> Mapping[str, int]:
    """Major number by name of every character device driver. Raises Broken when `/proc/devices` cannot be read.

    One name may stand beside several majors and one major beside several names; the first line of a name wins.
    """
    path = host.proc / "devices"
    try:
        section = _CHARACTER_DEVICES.search(path.read_text(errors="replace"))
    except OSError as error:
        raise Broken(f"{path} cannot be read: {error.strerror}; mount the host's /proc or name it with --proc-root") from error
    majors: dict[str, int] = {}
    for line in section[1].splitlines() if section else ():
        number, _, name = line.strip().partition(" ")
        majors.setdefault(name.strip(), _number(number, path))
    return majors


def mig_capability(host: HostPaths, *, gpu_minor: int, gpu_instance_id: int, compute_instance_id: int | None) -> Capability | None:
    """The capability that opens a GPU instance or, with `compute_instance_id`, a compute instance of it; None when there is none.

    The `access` file of an instance tells minor and mode. A driver that shows no such tree for the GPU still has its table of minors; the
    table is the same for instances that exist and for those that do not, so it counts only then.
    """
    instance = f"gi{gpu_instance_id}" if compute_instance_id is None else f"gi{gpu_instance_id}/ci{compute_instance_id}"
    tree = host.proc / f"driver/nvidia/capabilities/gpu{gpu_minor}/mig"
    path = tree / instance / "access"
    access = _fields(_text(path) or "")
    if access:
        mode = _number(access.get("DeviceFileMode", ""), path)  # decimal: 292 is 0444
        return Capability(minor=_number(access.get("DeviceFileMinor", ""), path), mode=mode)
    if tree.is_dir():
        return None
    table = host.proc / "driver/nvidia-caps/mig-minors"
    for line in (_text(table) or "").splitlines():
        name, _, minor = line.rpartition(" ")
        if name == f"gpu{gpu_minor}/{instance}/access":
            return Capability(minor=_number(minor, table), mode=0o444)
    return None


def _number(text: str, path: Path) -> int:
    if not text.isdecimal():
        raise Broken(f"{path}: expected a number, found {text!r}; is this the proc file system of a machine with this driver?")
    return int(text)


def _text(path: Path) -> str | None:
    try:
        return path.read_text(errors="replace")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise Broken(f"{path} cannot be read: {error.strerror}; run the plugin as root with the host's /proc mounted") from error


def _fields(text: str) -> Mapping[str, str]:
    """`Key: value` lines, as in the driver's `information`, `params` and `access` files."""
    pairs = (line.partition(":") for line in text.splitlines())
    return {key.strip(): value.strip() for key, colon, value in pairs if colon}
