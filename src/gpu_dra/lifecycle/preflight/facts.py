"""What a host's files say about kernel, driver and GPUs, as one frozen value. Blocking, read only, judges nothing.

Every fact that a host does not hold is None or empty: distributions differ, and none of them owes us a file.
Sources: kernel ABI documents (sysfs-bus-pci, sysfs-module), `modules.dep(5)`, UEFI `SecureBoot` variable, `os-release(5)`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeVar

from gpu_dra.core.errors import GpuDraError
from gpu_dra.hardware import procfs, sysfs
from gpu_dra.hardware.driver_root import find_library, resolve_in_root

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from gpu_dra.hardware.host import HostPaths

Result = TypeVar("Result")

_SECURE_BOOT: Final = "firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
_NVIDIA_MODULE: Final = re.compile(r"(^|/)nvidia(-current)?\.ko(\.\w+)?:", re.MULTILINE)
"""Debian's own packages build `nvidia-current.ko`."""
_VERSIONED: Final = re.compile(r"libnvidia-ml\.so\.(\d+\.\d+(?:\.\d+)?)")
_FABRIC_MANAGER: Final = "nv-fabricmanager"[:15]
"""As /proc/<pid>/comm has it, which holds 15 characters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """A kernel that is installed."""

    release: str
    has_nvidia_module: bool
    has_headers: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFacts:
    """The host as it stands."""

    os_id: str = ""
    """`ID` of os-release: `ubuntu`, `debian`, `rhel`, …"""
    gpus: Mapping[str, str | None] = field(default_factory=dict)
    """Every NVIDIA GPU on the PCI bus by address, with the kernel driver that has it."""
    running: Kernel | None = None
    boots_next: Kernel | None = None
    """None where the host's boot directory does not say."""
    secure_boot: bool = False
    module_version: str | None = None
    """Of the loaded kernel module."""
    module_is_open: bool | None = None
    library_version: str | None = None
    """From the file name behind `libnvidia-ml.so.1`; None when it has none."""
    library_trouble: str = ""
    """Why there is no library, in a sentence."""
    uvm: bool = False
    """The kernel knows the device `nvidia-uvm`."""
    nvswitches: int = 0
    fabric_manager_runs: bool = False
    driver_is_hosts: bool = True
    """False where the driver root is a driver container's."""


def read_facts(host: HostPaths, root: Path) -> HostFacts:
    """`root`: the host's root directory as we see it. Raises nothing that a host could cause."""
    release = _text(host.proc / "sys/kernel/osrelease")
    running = _kernel(root, release) if release else None
    library_version, library_trouble = _library(host)
    version = _text(host.proc / "driver/nvidia/version")
    return HostFacts(
        os_id=_os_id(root),
        gpus={str(pci): sysfs.bound_driver(host, pci) for pci in sysfs.nvidia_gpus(host)},
        running=running,
        boots_next=_boots_next(root),
        secure_boot=_secure_boot(host.sys / _SECURE_BOOT),
        module_version=_quietly(lambda: procfs.driver_version(host)),
        module_is_open="Open Kernel Module" in version if version else None,
        library_version=library_version,
        library_trouble=library_trouble,
        uvm="nvidia-uvm" in (_quietly(lambda: procfs.character_majors(host)) or {}),
        nvswitches=len(list(_entries(host.proc / "driver/nvidia-nvswitch/devices"))),
        fabric_manager_runs=any(_text(path / "comm") == _FABRIC_MANAGER for path in _entries(host.proc) if path.name.isdigit()),
        driver_is_hosts=str(host.host_driver_root) == "/",
    )


def _kernel(root: Path, release: str) -> Kernel:
    modules = resolve_in_root(root, f"lib/modules/{release}")
    build = resolve_in_root(root, f"lib/modules/{release}/build")
    dependencies = _text(modules / "modules.dep") if modules else None
    return Kernel(
        release=release,
        has_nvidia_module=bool(dependencies and _NVIDIA_MODULE.search(dependencies)),
        has_headers=build is not None and build.is_dir(),
    )


def _boots_next(root: Path) -> Kernel | None:
    """The kernel of the link `vmlinuz` that Debian and Ubuntu keep, else the newest one in /boot: both is what boot loaders start."""
    for name in ("vmlinuz", "boot/vmlinuz"):
        found = resolve_in_root(root, name)
        if found is not None and found.name.startswith("vmlinuz-"):
            return _kernel(root, found.name.removeprefix("vmlinuz-"))
    releases = [path.name.removeprefix("vmlinuz-") for path in _entries(root / "boot") if path.name.startswith("vmlinuz-")]
    releases = [release for release in releases if not re.search("rescue|[+]debug$", release)]
    return _kernel(root, max(releases, key=_by_version)) if releases else None


def _by_version(release: str) -> list[tuple[int, str]]:
    """Numbers by value, words by letter, as `sort -V`."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.findall(r"\d+|[^\d]+", release)]


def _library(host: HostPaths) -> tuple[str | None, str]:
    try:
        found = find_library(host.driver_root, "libnvidia-ml.so.1", on_host=host.host_driver_root)
    except GpuDraError as error:
        return None, str(error)
    matched = _VERSIONED.fullmatch(found.resolve().name)
    return (matched[1] if matched else None), ""


def _secure_boot(path: Path) -> bool:
    """Four bytes of attributes, then the value."""
    try:
        return path.read_bytes()[4:5] == b"\x01"
    except OSError:
        return False


def _os_id(root: Path) -> str:
    path = resolve_in_root(root, "etc/os-release")
    lines = (_text(path) or "").splitlines() if path else []
    return next((line.partition("=")[2].strip("\"'") for line in lines if line.startswith("ID=")), "")


def _quietly(read: Callable[[], Result]) -> Result | None:
    try:
        return read()
    except GpuDraError:
        return None


def _entries(directory: Path) -> Iterator[Path]:
    try:
        yield from directory.iterdir()
    except OSError:
        return


def _text(path: Path) -> str | None:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return None
