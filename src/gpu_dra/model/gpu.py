"""A GPU as the node sees it: what it is, where it sits, what condition it is in."""

from __future__ import annotations

from dataclasses import dataclass

from gpu_dra.model.mig import MigDevice
from gpu_dra.model.pci import PciAddress


@dataclass(frozen=True, slots=True, kw_only=True)
class Fabric:
    """NVLink fabric membership (NVML `nvmlGpuFabricInfoV`), present only when the fabric is complete and spans nodes."""

    cluster_uuid: str
    clique: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MigMode:
    """MIG mode now and after the next reset (NVML `nvmlDeviceGetMigMode`)."""

    current: bool
    pending: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One physical GPU. Identity is `uuid` and `pci`; `minor` names it. An optional fact that NVML refuses is None."""

    minor: int
    uuid: str
    pci: PciAddress
    product_name: str
    brand: str | None = None
    architecture: str | None = None
    cuda_compute_capability: tuple[int, int] | None = None
    memory_bytes: int | None = None
    addressing_mode: str | None = None
    fabric: Fabric | None = None
    pcie_root: str | None = None
    numa_node: int | None = None
    mig_mode: MigMode | None = None
    """None when the GPU cannot do MIG."""
    mig_devices: tuple[MigDevice, ...] = ()
    unhealthy: str | None = None
    """Why the GPU should not get new work (lost, hung, reset required); None when nothing is known against it."""

    @property
    def name(self) -> str:
        """Device name in the pool, `gpu-<minor>` as NVIDIA's driver publishes it."""
        return f"gpu-{self.minor}"

    @property
    def in_mig_mode(self) -> bool:
        """True when the GPU is partitioned now, so that it must not be offered whole."""
        return self.mig_mode is not None and self.mig_mode.current
