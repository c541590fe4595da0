"""A GPU machine's trees in a temporary folder: driver root, `/proc`, `/sys` and `/dev`, as small as the CDI room needs them."""

import os
import shutil
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from gpu_dra.hardware.host import HostPaths
from gpu_dra.model.gpu import Gpu, MigMode
from gpu_dra.model.mig import MigDevice, MigProfile, Placement
from gpu_dra.model.pci import PciAddress
from hack.testbed.elf_stub import architecture, shared_object

VERSION: Final = "580.126.09"
OURS: Final = architecture(os.uname().machine)
UBUNTU: Final = f"usr/lib/{OURS.triplet}"
GPU_MAJOR, UVM_MAJOR, CAPS_MAJOR, DRM_MAJOR = 195, 510, 237, 226
SONAMES: Final[Mapping[str, str]] = {
    "libcuda": "libcuda.so.1",
    "libnvidia-ml": "libnvidia-ml.so.1",
    "libnvidia-ptxjitcompiler": "libnvidia-ptxjitcompiler.so.1",
    "libnvidia-nvvm": "libnvidia-nvvm.so.4",
    "libGLX_nvidia": "libGLX_nvidia.so.0",
    "libnvidia-eglcore": "",  # its SONAME is its file name
    "libnvidia-allocator": "libnvidia-allocator.so.1",
    "libnvidia-opticalflow": "libnvidia-opticalflow.so.1",
}
OTHER_FILES: Final = (
    "usr/bin/nvidia-smi",
    "usr/bin/nvidia-cuda-mps-control",
    "usr/share/glvnd/egl_vendor.d/10_nvidia.json",
    "usr/share/vulkan/icd.d/nvidia_icd.json",
    "etc/OpenCL/vendors/nvidia.icd",
)


class HostTree:
    """A machine that tests change with a few words."""

    def __init__(self, directory: Path, *, driver_root: str = "root", version: str = VERSION, libraries: str = UBUNTU) -> None:
        self.directory = directory
        self.root = directory / driver_root
        self.version = version
        self.libraries = self.root / libraries
        self.root.mkdir(parents=True)
        for name in ("proc", "sys", "dev"):
            (directory / name).mkdir(exist_ok=True)
        self.load_modules()

    def host(self, *, host_driver_root: str = "/", cdi_hook: str | None = None) -> HostPaths:
        return HostPaths(
            proc=self.directory / "proc",
            sys=self.directory / "sys",
            dev=self.directory / "dev",
            driver_root=self.root,
            host_driver_root=Path(host_driver_root),
            cdi_hook=Path(cdi_hook) if cdi_hook else None,
        )

    def write(self, relative: str, content: bytes = b"x", *, mode: int = 0o755) -> Path:
        path = self.root / relative
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        path.chmod(mode)
        return path

    def library(self, name: str, soname: str, *, directory: Path | None = None, arch=OURS) -> Path:
        path = (directory or self.libraries) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(shared_object(soname or name, arch))
        return path

    def install_driver(self, *, version: str | None = None) -> "HostTree":
        """Everything an Ubuntu driver package of this version leaves."""
        self.version = version or self.version
        for stem, soname in SONAMES.items():
            self.library(f"{stem}.so.{self.version}", soname)
        self.library(f"vdpau/libvdpau_nvidia.so.{self.version}", "libvdpau_nvidia.so.1")
        self.library("libnvidia-egl-gbm.so.1.1.2", "libnvidia-egl-gbm.so.1")
        self.library("libnvidia-nvvm70.so.4", "libnvidia-nvvm70.so.4")
        for path in OTHER_FILES:
            self.write(path)
        self.write(f"lib/firmware/nvidia/{self.version}/gsp_ga10x.bin", mode=0o644)
        return self

    def uninstall_driver(self) -> None:
        for entry in self.root.iterdir():
            shutil.rmtree(entry)

    def install_hook(self, relative: str = "usr/bin/nvidia-cdi-hook") -> "HostTree":
        self.write(relative)
        return self

    def age(self) -> "HostTree":
        """Make every directory look as if it had not changed for an hour."""
        for path in (self.root, *self.root.rglob("*")):
            if path.is_dir() and not path.is_symlink():
                hour_ago = path.stat().st_mtime - 3600
                os.utime(path, (hour_ago, hour_ago))
        return self

    def load_modules(self, *, names: Iterable[str] = ("nvidia", "nvidia-modeset", "nvidia-uvm", "nvidia-caps")) -> None:
        majors = {"nvidia": GPU_MAJOR, "nvidia-modeset": GPU_MAJOR, "nvidia-uvm": UVM_MAJOR, "nvidia-caps": CAPS_MAJOR}
        rows = "".join(f"{majors[name]:3} {name}\n" for name in names)
        (self.directory / "proc/devices").write_text(f"Character devices:\n  1 mem\n{rows}\nBlock devices:\n  7 loop\n")

    def device_file_policy(self, *, mode: int = 0o666, gid: int = 0, modify: int = 1) -> None:
        path = self.directory / "proc/driver/nvidia/params"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"ModifyDeviceFiles: {modify}\nDeviceFileUID: 0\nDeviceFileGID: {gid}\nDeviceFileMode: {mode}\n")

    def node(self, name: str, major: int, minor: int, *, mode: int = 0o666, gid: int = 0) -> Path:
        path = self.directory / "dev" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        os.mknod(path, stat.S_IFCHR, os.makedev(major, minor))
        os.chown(path, 0, gid)
        path.chmod(mode)
        return path

    def drm(self, gpu: Gpu, *, card: int, render: int, gid: int = 44) -> None:
        """The GPU's graphics nodes, open to one group as udev makes them."""
        for name, minor in ((f"card{card}", card), (f"renderD{render}", render)):
            number = self.directory / "sys/bus/pci/devices" / str(gpu.pci) / "drm" / name / "dev"
            number.parent.mkdir(parents=True)
            number.write_text(f"{DRM_MAJOR}:{minor}\n")
            self.node(f"dri/{name}", DRM_MAJOR, minor, mode=0o660, gid=gid)

    def mig_capabilities(self, minor: int, mig: MigDevice, *, gi: int, ci: int) -> None:
        base = self.directory / f"proc/driver/nvidia/capabilities/gpu{minor}/mig/gi{mig.gpu_instance_id}"
        for directory, number in ((base, gi), (base / f"ci{mig.compute_instance_id}", ci)):
            directory.mkdir(parents=True)
            (directory / "access").write_text(f"DeviceFileMinor: {number}\nDeviceFileMode: 292\nDeviceFileModify: 1\n")


def gpu(minor: int = 0, **facts) -> Gpu:
    return Gpu(
        minor=minor,
        uuid=f"GPU-{minor:08x}-0000-0000-0000-000000000000",
        pci=PciAddress(0, 0x10 + minor, 0, 0),
        product_name="NVIDIA H100 80GB HBM3",
        **facts,
    )


def mig_device(parent: Gpu, *, profile: str = "1g.10gb", gpu_instance_id: int = 9) -> MigDevice:
    return MigDevice(
        uuid="MIG-00000000-0000-0000-0000-000000000001",
        parent_minor=parent.minor,
        parent_uuid=parent.uuid,
        gpu_instance_id=gpu_instance_id,
        compute_instance_id=0,
        profile=MigProfile(
            name=profile,
            profile_id=19,
            multiprocessors=16,
            copy_engines=1,
            decoders=1,
            encoders=0,
            jpeg_engines=1,
            ofa_engines=0,
            memory_mib=9856,
        ),
        placement=Placement(start=0, size=1),
    )


def partitioned_gpu(minor: int = 0) -> Gpu:
    return gpu(minor, mig_mode=MigMode(current=True, pending=True))
