"""What an installed NVIDIA driver leaves below its root: libraries, programs, firmware and configuration files.

Pure: returns entries for `tree.write`. Names, SONAMEs and links are those of the public driver packages; which of them a container
gets is decided by who reads them (the list follows what NVIDIA's container toolkit looks for). The NVML library, `nvidia-smi` and
the optional `nvidia-cdi-hook` are real programs built elsewhere; everything else is an ELF stub.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from hack.testbed.elf_stub import Architecture, program, shared_object
from hack.testbed.tree import CopiedFile, Directory, Entry, File, Link, Socket

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverPrograms:
    """Programs with behaviour, already built for this machine."""

    nvml_library: Path
    nvidia_smi: Path
    cdi_hook: Path | None
    """`nvidia-cdi-hook`, or None for a host without NVIDIA's container toolkit."""


_SONAME_1: Final = (
    "libcuda",
    "libcudadebugger",
    "libnvcuvid",
    "libnvidia-allocator",
    "libnvidia-cfg",
    "libnvidia-encode",
    "libnvidia-fbc",
    "libnvidia-ngx",
    "libnvidia-opencl",
    "libnvidia-opticalflow",
    "libnvidia-ptxjitcompiler",
    "libnvidia-sandboxutils",
    "libnvoptix",
)
"""Libraries with an interface version: `<name>.so.1 -> <name>.so.<driver version>`."""

_SONAME_4: Final = ("libnvidia-nvvm",)

_SONAME_0: Final = ("libEGL_nvidia", "libGLX_nvidia")

_VERSIONED_ONLY: Final = (
    "libnvidia-eglcore",
    "libnvidia-glcore",
    "libnvidia-glsi",
    "libnvidia-glvkspirv",
    "libnvidia-gpucomp",
    "libnvidia-rtcore",
    "libnvidia-tls",
)
"""Internal libraries whose SONAME is the file name itself."""

_DEVELOPMENT_LINKS: Final = ("libcuda", "libnvidia-allocator", "libnvidia-opticalflow", "libnvidia-ml", "libnvcuvid")
"""Libraries that the driver also offers without any version, since programs dlopen that name."""

_WITHOUT_DRIVER_VERSION: Final = ("libnvidia-nvvm70.so.4",)
"""Files that do not carry the driver's version, so a search by version misses them."""

_EGL_PLATFORMS: Final = {"libnvidia-egl-gbm": "1.1.2", "libnvidia-egl-wayland": "1.1.19"}
"""Libraries with a version of their own."""

_PROGRAMS: Final = (
    "nvidia-cuda-mps-control",
    "nvidia-cuda-mps-server",
    "nvidia-debugdump",
    "nvidia-imex",
    "nvidia-imex-ctl",
    "nvidia-persistenced",
    "nvidia-xconfig",
)

_FIRMWARE: Final = ("gsp_ga10x.bin", "gsp_tu10x.bin")


KERNEL_TREE = "mock-kernel"
"""Where the driver root brings `/proc/driver/nvidia` along, so that a container that changes partitions changes what the kernel shows."""


def library_directory(arch: Architecture) -> str:
    """Where Debian's and Ubuntu's packages put the libraries, relative to the driver root."""
    return f"usr/lib/{arch.triplet}"


def driver_root(version: str, arch: Architecture, programs: DriverPrograms) -> list[Entry]:
    """Everything below the driver root for one driver version such as `580.105.08` or `580.142`."""
    return [
        *_libraries(version, arch),
        *_nvml(version, arch, programs.nvml_library),
        *_programs(arch, programs),
        *_firmware(version),
        *_configuration(),
        Directory(path="tmp"),
        Directory(path=f"{library_directory(arch)}/{KERNEL_TREE}"),
        Socket(path="run/nvidia-persistenced/socket"),
        # ldconfig reads it: the stub root has the layout of Debian, whatever this machine's distribution.
        File(path="etc/ld.so.conf", content=f"/{library_directory(arch)}\n".encode()),
    ]


def _libraries(version: str, arch: Architecture) -> list[Entry]:
    directory = library_directory(arch)
    sonames = {
        **{name: f"{name}.so.1" for name in _SONAME_1},
        **{name: f"{name}.so.4" for name in _SONAME_4},
        **{name: f"{name}.so.0" for name in _SONAME_0},
        **{name: f"{name}.so.{version}" for name in _VERSIONED_ONLY},
    }
    entries: list[Entry] = []
    for name, soname in sonames.items():
        entries += _library(directory, f"{name}.so.{version}", soname, arch)
    for name, own_version in _EGL_PLATFORMS.items():
        entries += _library(directory, f"{name}.so.{own_version}", f"{name}.so.1", arch)
    for name in _WITHOUT_DRIVER_VERSION:
        entries += _library(directory, name, name, arch)
    entries += _library(f"{directory}/vdpau", f"libvdpau_nvidia.so.{version}", "libvdpau_nvidia.so.1", arch)
    entries += [Link(path=f"{directory}/{name}.so", target=f"{name}.so.1") for name in _DEVELOPMENT_LINKS]
    entries.append(Link(path=f"{directory}/gbm/nvidia-drm_gbm.so", target="../libnvidia-allocator.so.1"))
    return entries


def _library(directory: str, name: str, soname: str, arch: Architecture) -> list[Entry]:
    file = File(path=f"{directory}/{name}", content=shared_object(soname, arch), mode=0o755)
    return [file] if name == soname else [file, Link(path=f"{directory}/{soname}", target=name)]


def _nvml(version: str, arch: Architecture, library: Path) -> list[Entry]:
    name = f"libnvidia-ml.so.{version}"
    return [
        CopiedFile(path=f"{library_directory(arch)}/{name}", source=library),
        Link(path=f"{library_directory(arch)}/libnvidia-ml.so.1", target=name),
    ]


def _programs(arch: Architecture, programs: DriverPrograms) -> list[Entry]:
    entries: list[Entry] = [File(path=f"usr/bin/{name}", content=program(arch), mode=0o755) for name in _PROGRAMS]
    entries.append(CopiedFile(path="usr/bin/nvidia-smi", source=programs.nvidia_smi))
    if programs.cdi_hook is not None:
        entries.append(CopiedFile(path="usr/bin/nvidia-cdi-hook", source=programs.cdi_hook))
    return entries


def _firmware(version: str) -> list[Entry]:
    return [File(path=f"lib/firmware/nvidia/{version}/{name}", content=f"stand-in for {name}\n".encode()) for name in _FIRMWARE]


def _configuration() -> list[Entry]:
    documents = {
        "usr/share/glvnd/egl_vendor.d/10_nvidia.json": _icd("libEGL_nvidia.so.0"),
        "usr/share/egl/egl_external_platform.d/15_nvidia_gbm.json": _icd("libnvidia-egl-gbm.so.1"),
        "usr/share/egl/egl_external_platform.d/10_nvidia_wayland.json": _icd("libnvidia-egl-wayland.so.1"),
        "etc/vulkan/icd.d/nvidia_icd.json": _icd("libGLX_nvidia.so.0", api_version="1.4.312"),
        "etc/vulkan/implicit_layer.d/nvidia_layers.json": {"file_format_version": "1.0.1", "layers": []},
    }
    entries: list[Entry] = [
        File(path=path, content=json.dumps(document, indent=4).encode() + b"\n") for path, document in documents.items()
    ]
    entries.append(File(path="etc/OpenCL/vendors/nvidia.icd", content=b"libnvidia-opencl.so.1\n"))
    entries.append(File(path="usr/share/nvidia/nvoptix.bin", content=b"stand-in for nvoptix.bin\n"))
    return entries


def _icd(library: str, **more: str) -> dict[str, object]:
    return {"file_format_version": "1.0.0", "ICD": {"library_path": library, **more}}
