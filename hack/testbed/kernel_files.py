"""What a loaded NVIDIA kernel driver shows in `/proc` and `/dev`.

Pure: turns a machine profile into entries for `tree.write`. Text shapes follow public captures of driver 550 and later, in the
wording of open and proprietary modules. Nothing of partitions that exist at the moment: whoever creates them shows them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hack.testbed.pci_files import DRM_MAJOR, drm_names
from hack.testbed.tree import CharDevice, Directory, Entry, File

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hack.testbed.profiles import GpuSpec, Machine

_READABLE, _OWNER_ONLY = 0o444, 0o400
MARKER: Final = ".mock-host"
"""Tells the mocked library that this `/proc/driver/nvidia` may be written to, and that the process stands on the host."""

CONFIG_CAPABILITY, MONITOR_CAPABILITY = 1, 2
_GPUS, _GPU_INSTANCES, _COMPUTE_INSTANCES = 32, 15, 8
"""How many the driver numbers in advance."""

_FRONTEND_RENAMED: Final = (550, 40)
"""Since this release `/proc/devices` says `nvidia`, before it `nvidia-frontend`."""


def proc_entries(machine: Machine, version: str) -> list[Entry]:
    """Entries below the proc root; `version` is the driver's as its files spell it."""
    return [
        File(path="devices", content=_devices(machine.char_majors, version).encode(), mode=_READABLE),
        File(path="driver/nvidia/version", content=_version(machine, version).encode(), mode=_READABLE),
        File(path="driver/nvidia/params", content=_PARAMETERS.encode(), mode=_READABLE),
        File(path=f"driver/nvidia/{MARKER}", content=b""),
        Directory(path="driver/nvidia/gpus"),
        *(
            File(path=f"driver/nvidia/gpus/{gpu.pci}/information", content=_information(gpu, version).encode(), mode=_READABLE)
            for gpu in machine.gpus
        ),
        *_capabilities(machine),
        File(path="driver/nvidia-caps/mig-minors", content=_mig_minors().encode(), mode=_READABLE),
    ]


def dev_entries(machine: Machine) -> list[Entry]:
    """Entries below the dev root right after boot: none but DRM nodes where nothing has asked for the others yet.

    DRM nodes come from the kernel itself; the rest are made by whoever needs them first.
    """
    drm = [entry for order in range(len(machine.gpus)) for entry in _drm_nodes(order)]
    if not machine.device_nodes_at_boot:
        return [Directory(path="dri"), *drm]
    majors = machine.char_majors
    return [
        *drm,
        *(CharDevice(path=f"nvidia{gpu.minor}", major=majors["nvidia"], minor=gpu.minor) for gpu in machine.gpus),
        CharDevice(path="nvidiactl", major=majors["nvidia"], minor=255),
        CharDevice(path="nvidia-modeset", major=majors["nvidia"], minor=254),
        CharDevice(path="nvidia-uvm", major=majors["nvidia-uvm"], minor=0),
        CharDevice(path="nvidia-uvm-tools", major=majors["nvidia-uvm"], minor=1),
        capability_node(machine.char_majors, CONFIG_CAPABILITY, _OWNER_ONLY),
        capability_node(machine.char_majors, MONITOR_CAPABILITY, _READABLE),
        *_nvswitch_nodes(machine),
    ]


def capability_node(majors: dict[str, int], minor: int, mode: int) -> CharDevice:
    """The node through which a process is let into one capability: MIG configuration, or a GPU or compute instance."""
    return CharDevice(path=f"nvidia-caps/nvidia-cap{minor}", major=majors["nvidia-caps"], minor=minor, mode=mode)


def _devices(majors: dict[str, int], version: str) -> str:
    character = [("mem", 1), ("tty", 5), ("misc", 10), ("drm", DRM_MAJOR), *majors.items()]
    if _release(version) < _FRONTEND_RENAMED:
        character = [("nvidia-frontend" if name == "nvidia" else name, number) for name, number in character]
    else:
        character += [(name, majors["nvidia"]) for name in ("nvidia-modeset", "nvidiactl")]
    rows = sorted((number, name) for name, number in character)
    # A block device repeats a name with another number on purpose: a name counts only below its own header.
    block = [(7, "loop"), (majors["nvidia-caps"] + 1, "nvidia-caps"), (259, "blkext")]
    return f"Character devices:\n{_columns(rows)}\nBlock devices:\n{_columns(block)}"


def _columns(rows: list[tuple[int, str]]) -> str:
    return "".join(f"{number:3d} {name}\n" for number, name in rows)


def _release(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def _version(machine: Machine, version: str) -> str:
    architecture = machine.cpu_architecture
    if machine.kernel_module == "open":
        module = f"NVIDIA UNIX Open Kernel Module for {architecture}  {version}  Release Build  (builder@host)"
    elif architecture == "aarch64":
        module = f"NVIDIA UNIX Kernel Module for aarch64  {version}"
    else:
        module = f"NVIDIA UNIX {architecture} Kernel Module  {version}"
    return f"NVRM version: {module}  Wed Oct  1 12:00:00 UTC 2025\nGCC version:  gcc version 12.2.0 (Debian 12.2.0-14+deb12u1)\n"


_PARAMETERS: Final = """\
ResmanDebugLevel: 4294967295
RmLogonRC: 1
ModifyDeviceFiles: 1
DeviceFileUID: 0
DeviceFileGID: 0
DeviceFileMode: 438
InitializeSystemMemoryAllocations: 1
UsePageAttributeTable: 4294967295
EnablePCIeGen3: 0
EnableGpuFirmware: 18
RegistryDwords: ""
GpuBlacklist: ""
ExcludedGpus: ""
"""


def _information(gpu: GpuSpec, version: str) -> str:
    rows = {
        "Model": gpu.board.product,
        "IRQ": str(64 + gpu.minor),
        "GPU UUID": gpu.uuid,
        "Video BIOS": gpu.board.vbios.lower(),
        "Bus Type": "PCIe",
        "DMA Size": "47 bits",
        "DMA Mask": "0x7fffffffffff",
        "Bus Location": gpu.pci,
        "Device Minor": str(gpu.minor),
        "GPU Firmware": version,
        "GPU Excluded": "No",
    }
    return "".join(f"{key}:{_tabs(key)}{value}\n" for key, value in rows.items())


def _tabs(key: str) -> str:
    """The driver aligns values at column 16 with tabs; a longer key is followed by one tab."""
    return "\t" * max(1, 2 - (len(key) + 1) // 8)


def _capabilities(machine: Machine) -> Iterator[Entry]:
    yield _access("mig/config", CONFIG_CAPABILITY, _OWNER_ONLY)
    yield _access("mig/monitor", MONITOR_CAPABILITY, _READABLE)
    for gpu in machine.gpus:
        if gpu.board.mig:
            yield Directory(path=f"driver/nvidia/capabilities/gpu{gpu.minor}/mig")


def _access(name: str, minor: int, mode: int) -> File:
    content = (
        f"DeviceFileMinor: {minor}\nDeviceFileMode: {mode}\nDeviceFileModify: 1\n"  # the mode is decimal, as the driver prints it
    )
    return File(path=f"driver/nvidia/capabilities/{name}", content=content.encode(), mode=_READABLE)


def _mig_minors() -> str:
    """Minor of every capability that could exist, numbered in advance whether or not the GPU is there."""
    lines = [f"config {CONFIG_CAPABILITY}", f"monitor {MONITOR_CAPABILITY}"]
    minor = MONITOR_CAPABILITY
    for gpu in range(_GPUS):
        for gi in range(_GPU_INSTANCES):
            minor += 1
            lines.append(f"gpu{gpu}/gi{gi}/access {minor}")
            for ci in range(_COMPUTE_INSTANCES):
                minor += 1
                lines.append(f"gpu{gpu}/gi{gi}/ci{ci}/access {minor}")
    return "\n".join(lines) + "\n"


def _drm_nodes(order: int) -> Iterator[Entry]:
    for minor, name in drm_names(order):
        yield CharDevice(path=f"dri/{name}", major=DRM_MAJOR, minor=minor, mode=0o660 if name.startswith("card") else 0o666)


def _nvswitch_nodes(machine: Machine) -> Iterator[Entry]:
    if not machine.nvswitches:
        return
    major = machine.char_majors["nvidia-nvswitch"]
    for number in range(machine.nvswitches):
        yield CharDevice(path=f"nvidia-nvswitch{number}", major=major, minor=number)
    yield CharDevice(path="nvidia-nvswitchctl", major=major, minor=255)
