"""What a node has, as one frozen snapshot."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from gpu_dra.model.gpu import Gpu
from gpu_dra.model.mig import MigDevice
from gpu_dra.model.pci import PciAddress


class DriverState(StrEnum):
    """Whether this node's NVIDIA driver can be asked; every state but READY heals by itself when its cause goes away."""

    READY = "Ready"
    NO_GPU = "NoGpu"
    DRIVER_NOT_LOADED = "DriverNotLoaded"
    LIBRARY_NOT_FOUND = "LibraryNotFound"
    VERSION_MISMATCH = "VersionMismatch"
    UNRESPONSIVE = "Unresponsive"


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuFault:
    """A GPU that could not be described well enough to be offered."""

    where: str
    """Which GPU, as precisely as known: its PCI address, else `index 3`."""
    reason: str
    """A sentence a person can act on."""
    pci: PciAddress | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """The GPUs and MIG devices of the node, with the reasons for what is missing."""

    state: DriverState
    reason: str = ""
    """Why `state` is not READY and what to do; empty when it is."""
    driver_version: str | None = None
    """As NVML prints it (`580.126.09`), not yet semver."""
    cuda_driver_version: tuple[int, int] | None = None
    gpus: tuple[Gpu, ...] = ()
    """Sorted by minor."""
    faults: tuple[GpuFault, ...] = ()
    warnings: tuple[str, ...] = ()
    """Facts left out because NVML or sysfs refused them, one sentence each."""

    def devices(self) -> Iterator[Gpu | MigDevice]:
        """Every device that may be allocated, in publishing order: whole GPUs not in MIG mode, and MIG devices."""
        for gpu in self.gpus:
            if gpu.in_mig_mode:
                yield from gpu.mig_devices
            else:
                yield gpu

    def find(self, name: str) -> tuple[Gpu, MigDevice | None] | None:
        """The GPU, and the MIG device if `name` is one, behind a device name of the pool; None when it is not there."""
        for gpu in self.gpus:
            if gpu.name == name and not gpu.in_mig_mode:
                return gpu, None
            for mig in gpu.mig_devices:
                if mig.name == name:
                    return gpu, mig
        return None
