"""Read PCI facts below `/sys`: which NVIDIA GPUs the bus has, where each sits, its NUMA node and its DRM nodes.

Source: the kernel's sysfs-bus-pci ABI. Blocking, each call a few small reads. A fact that the tree does not hold is None: virtual
machines and containers show odd trees, and none of these facts is worth losing a GPU for.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gpu_dra.model.pci import PciAddress

if TYPE_CHECKING:
    from pathlib import Path

    from gpu_dra.hardware.host import HostPaths

_NVIDIA: Final = "0x10de"
_DISPLAY_CLASS: Final = "0x03"
"""PCI base class of display controllers: VGA (0300) and 3D (0302)."""
_ROOT_COMPLEX: Final = re.compile(r"pci[0-9a-f]{4,}:[0-9a-f]{2}")


@dataclass(frozen=True, slots=True, kw_only=True)
class DrmDevice:
    """A node that the GPU has below `/dev/dri`."""

    name: str
    """`card1`, `renderD128`."""
    major: int
    minor: int


def nvidia_gpus(host: HostPaths) -> tuple[PciAddress, ...]:
    """Every NVIDIA display or 3D controller on the bus, whether a driver is bound to it or not."""
    return tuple(sorted(address for address in _addresses(host.sys / "bus/pci/devices") if _is_nvidia_gpu(_device(host, address))))


def bound_gpus(host: HostPaths) -> tuple[PciAddress, ...]:
    """The PCI functions that the nvidia kernel driver has taken. One directory read."""
    return tuple(sorted(_addresses(host.sys / "bus/pci/drivers/nvidia")))


def bound_driver(host: HostPaths, pci: PciAddress) -> str | None:
    """The kernel driver that has taken the device, `nvidia` or `nouveau`; None when none has."""
    try:
        return (_device(host, pci) / "driver").readlink().name
    except OSError:
        return None


def numa_node(host: HostPaths, pci: PciAddress) -> int | None:
    """The NUMA node the GPU is attached to; None when the platform does not say (-1)."""
    text = _text(_device(host, pci) / "numa_node")
    return int(text) if text is not None and text.isdecimal() else None


def pcie_root(host: HostPaths, pci: PciAddress) -> str | None:
    """The root complex above the GPU (`pci0000:64`), as `resource.kubernetes.io/pcieRoot` wants it; None when it has none."""
    try:
        parts = _device(host, pci).resolve(strict=True).parts
    except OSError:
        return None
    return next((part for part in parts if _ROOT_COMPLEX.fullmatch(part)), None)


def pci_id(host: HostPaths, pci: PciAddress) -> str | None:
    """Device and vendor in one number as mig-parted writes them, `0x20b010de`; None where the bus does not say."""
    device, vendor = _text(_device(host, pci) / "device"), _text(_device(host, pci) / "vendor")
    return f"0x{device[2:]}{vendor[2:]}".lower() if device and vendor else None


def drm_devices(host: HostPaths, pci: PciAddress) -> tuple[DrmDevice, ...]:
    """The GPU's DRM nodes, by name; none on a machine without the nvidia-drm module."""
    found = []
    for name in _names(_device(host, pci) / "drm"):
        number = _text(_device(host, pci) / "drm" / name / "dev")
        if number is not None:
            major, minor = number.split(":")
            found.append(DrmDevice(name=name, major=int(major), minor=int(minor)))
    return tuple(found)


def _device(host: HostPaths, pci: PciAddress) -> Path:
    return host.sys / "bus/pci/devices" / str(pci)


def _is_nvidia_gpu(device: Path) -> bool:
    return _text(device / "vendor") == _NVIDIA and (_text(device / "class") or "").startswith(_DISPLAY_CLASS)


def _addresses(directory: Path) -> list[PciAddress]:
    found = []
    for name in _names(directory):
        try:
            found.append(PciAddress.parse(name))
        except ValueError:
            continue  # `bind`, `module`, `new_id` and the like stand beside the devices
    return found


def _names(directory: Path) -> list[str]:
    try:
        return sorted(path.name for path in directory.iterdir())
    except OSError:
        return []


def _text(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except OSError:
        return None
