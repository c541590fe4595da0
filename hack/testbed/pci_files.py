"""What a machine with NVIDIA GPUs shows in `/sys`: PCI devices below their root complexes, DRM names, the kernel module.

Pure: turns a machine profile into entries for `tree.write`. `bus/pci/devices` holds relative links into `devices/`, as sysfs does,
so the first component of a link's target is the PCIe root (Linux `Documentation/filesystems/sysfs.rst`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hack.testbed.tree import Directory, Entry, File, Link

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hack.testbed.profiles import GpuSpec, Machine

DRM_MAJOR: Final = 226
_FIRST_RENDER_MINOR: Final = 128
_CLASS_3D_CONTROLLER: Final = "0x030200"
_SWITCH_PORT: Final = {"vendor": "0x1000", "device": "0xc030", "class": "0x060400"}
"""A PCIe switch's port between root complex and GPU."""


def sys_entries(machine: Machine, version: str) -> list[Entry]:
    """Entries below the sys root; `version` is the driver's as its files spell it."""
    return [
        Directory(path="devices"),
        Directory(path="bus/pci/devices"),
        Directory(path="bus/pci/drivers/nvidia"),
        _attribute("module/nvidia/version", version),
        _attribute("module/nvidia/refcnt", "0"),
        *(entry for order, gpu in enumerate(machine.gpus) for entry in _gpu(gpu, order)),
    ]


def drm_names(order: int) -> tuple[tuple[int, str], tuple[int, str]]:
    """Minor and name of the card and of the render node of the GPU that is `order`th on the bus."""
    render = _FIRST_RENDER_MINOR + order
    return (order, f"card{order}"), (render, f"renderD{render}")


def _gpu(gpu: GpuSpec, order: int) -> Iterator[Entry]:
    root = f"devices/{gpu.pcie_root}"
    root_bus = gpu.pcie_root.removeprefix("pci")
    parent = root
    if not gpu.pci.startswith(f"{root_bus}:"):  # on a bus of its own, hence behind a port
        port = f"{root_bus}:{1 + order:02x}.0"
        parent = f"{root}/{port}"
        yield from _device(parent, port, {**_SWITCH_PORT, "numa_node": str(gpu.numa_node)})
    directory = f"{parent}/{gpu.pci}"
    yield from _device(directory, gpu.pci, _attributes(gpu))
    yield Link(path=f"{directory}/driver", target=f"{_up(directory)}bus/pci/drivers/nvidia")
    yield Link(path=f"bus/pci/drivers/nvidia/{gpu.pci}", target=f"../../../../{directory}")
    for _, name in drm_names(order):
        yield Directory(path=f"{directory}/drm/{name}")


def _attributes(gpu: GpuSpec) -> dict[str, str]:
    board = gpu.board
    return {
        "vendor": f"0x{board.pci_device & 0xFFFF:04x}",
        "device": f"0x{board.pci_device >> 16:04x}",
        "subsystem_vendor": f"0x{board.pci_subsystem & 0xFFFF:04x}",
        "subsystem_device": f"0x{board.pci_subsystem >> 16:04x}",
        "class": _CLASS_3D_CONTROLLER,
        "numa_node": str(gpu.numa_node),
    }


def _device(directory: str, address: str, attributes: dict[str, str]) -> Iterator[Entry]:
    for name, value in attributes.items():
        yield _attribute(f"{directory}/{name}", value)
    yield Link(path=f"bus/pci/devices/{address}", target=f"../../../{directory}")


def _attribute(path: str, value: str) -> File:
    return File(path=path, content=f"{value}\n".encode(), mode=0o444)


def _up(directory: str) -> str:
    """The way from a link in `directory` back to the sys root."""
    return "../" * (directory.count("/") + 1)
