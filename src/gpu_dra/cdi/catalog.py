"""Which files of an installed NVIDIA driver a container needs, by name.

Source: what NVIDIA's container toolkit 1.20 injects (`pkg/nvcdi`, `internal/discover/{graphics,ipc,symlinks}.go`), so that an image
that works with it works with us. Names and patterns only; where they are looked for on disk is `driver_files`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

OWN_VERSION_LIBRARY: Final = re.compile(r"libnvidia-(?:egl-(?:gbm|wayland2?|xcb|xlib)\.so\.\d+\.[\d.]+|nvvm70\.so\.[\d.]+)")
"""Libraries of the driver that are numbered on their own; all others end in the driver version."""

LIBRARY_SUBDIRECTORIES: Final = ("", "vdpau")
"""Where libraries lie, relative to a library directory: itself, and plugins that libvdpau loads by path."""

XORG_DIRECTORIES: Final = (
    *("nvidia/xorg", "xorg/modules", "xorg/modules/drivers", "xorg/modules/extensions"),
    *("xorg/modules/updates/drivers", "xorg/modules/updates/extensions"),
)
"""Where the X server's driver modules lie, relative to a library directory."""

XORG_DRIVER: Final = "nvidia_drv.so"
XORG_EXTENSION: Final = "libglxserver_nvidia.so"
"""Followed by the driver version on disk, loaded without it."""

PROGRAMS: Final = (
    "nvidia-cuda-mps-control",
    "nvidia-cuda-mps-server",
    "nvidia-debugdump",
    "nvidia-imex",
    "nvidia-imex-ctl",
    "nvidia-persistenced",
    "nvidia-smi",
    "nvidia-xconfig",
)
PROGRAM_DIRECTORIES: Final = ("usr/local/bin", "usr/local/sbin", "usr/bin", "usr/sbin", "bin", "sbin")

FIRMWARE: Final = re.compile(r"gsp.*\.bin")
"""The GSP's firmware, in `nvidia/<driver version>` of a firmware directory."""

CONFIGURATION_SOURCES: Final = ("etc", "usr/local/share", "usr/share")
"""Where distributions put configuration files; in a container they go to one fixed place each."""

CONFIGURATION: Final = {
    "/usr/share": (
        "glvnd/egl_vendor.d/10_nvidia.json",
        "egl/egl_external_platform.d/15_nvidia_gbm.json",
        "egl/egl_external_platform.d/10_nvidia_wayland.json",
        "egl/egl_external_platform.d/09_nvidia_wayland2.json",
        "egl/egl_external_platform.d/20_nvidia_xcb.json",
        "egl/egl_external_platform.d/20_nvidia_xlib.json",
        "nvidia/nvoptix.bin",
        "X11/xorg.conf.d/10-nvidia.conf",
        "X11/xorg.conf.d/nvidia-drm-outputclass.conf",
    ),
    "/etc": (
        "OpenCL/vendors/nvidia.icd",
        "vulkan/icd.d/nvidia_icd.json",
        "vulkan/icd.d/nvidia_icd.x86_64.json",
        "vulkan/icd.d/nvidia_icd.aarch64.json",
        "vulkan/icd.d/nvidia_layers.json",
        "vulkan/implicit_layer.d/nvidia_layers.json",
    ),
}
"""Graphics and compute configuration by where a container expects it."""

SOCKETS: Final = (
    ("run/nvidia-persistenced/socket", "var/run/nvidia-persistenced/socket"),
    ("run/nvidia-fabricmanager/socket", "var/run/nvidia-fabricmanager/socket"),
)
"""Sockets of the driver's daemons; of each line the first that exists."""

HOOK_PATHS: Final = ("usr/bin/nvidia-cdi-hook", "usr/local/bin/nvidia-cdi-hook", "usr/local/nvidia/toolkit/nvidia-cdi-hook")
"""Where packages and the GPU operator's toolkit container put the hook program."""

MPS_DIRECTORY: Final = "tmp/nvidia-mps"
"""Pipes of a CUDA MPS daemon that the administrator runs on the host."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtraLink:
    """A name besides the SONAME by which programs load a library."""

    library: str
    """File name without version."""
    link: str
    """Relative to the library's directory."""


EXTRA_LINKS: Final = (
    ExtraLink(library="libcuda.so", link="libcuda.so"),
    ExtraLink(library="libGLX_nvidia.so", link="libGLX_indirect.so.0"),
    ExtraLink(library="libnvidia-allocator.so", link="gbm/nvidia-drm_gbm.so"),
    ExtraLink(library="libnvidia-opticalflow.so", link="libnvidia-opticalflow.so"),
    ExtraLink(library="libnvidia-vulkan-producer.so", link="libnvidia-vulkan-producer.so"),
)
