"""One look at all GPUs through an open NVML session.

Blocking; runs on the NVML thread. A GPU that errors never hides another: what cannot be identified becomes a fault, what was known before
and answers no longer stays in the inventory as unhealthy, and an optional fact that NVML or sysfs refuses is left out. Decides nothing
about publishing or claims.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, TypeVar

from gpu_dra.core.errors import GpuDraError
from gpu_dra.hardware import mig_scan, names, procfs, sysfs
from gpu_dra.hardware.host import HostPaths
from gpu_dra.hardware.nvml import FabricState, GpuHandle, Nvml, RecoveryAction
from gpu_dra.hardware.nvml_errors import GpuLost, NotSupported, NvmlError, ResetRequired
from gpu_dra.model.gpu import Fabric, Gpu, MigMode
from gpu_dra.model.inventory import DriverState, GpuFault, Inventory
from gpu_dra.model.pci import PciAddress

Fact = TypeVar("Fact")

_ACTIONS: Final[Mapping[int, str]] = {
    RecoveryAction.GPU_RESET: "needs a reset; drain the node and run nvidia-smi --gpu-reset",
    RecoveryAction.NODE_REBOOT: "needs a reboot of the node; drain and reboot it",
    RecoveryAction.DRAIN_P2P: "needs its peer-to-peer traffic drained; stop the jobs that use several GPUs",
    RecoveryAction.DRAIN_AND_RESET: "must be drained and reset; drain the node and run nvidia-smi --gpu-reset",
    RecoveryAction.RECOVER_IMEX_DOMAIN: "needs its IMEX domain recovered; restart nvidia-imex on all nodes of the domain",
    RecoveryAction.BUS_RESET: "needs a bus reset; drain and reboot the node",
    RecoveryAction.SYSTEM_REBOOT: "needs a reboot of the whole system",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """An inventory, and which NVML index of this session each GPU has."""

    inventory: Inventory
    by_index: Mapping[int, Gpu] = field(default_factory=dict)


class Notes:
    """Facts that were left out, one sentence each."""

    def __init__(self) -> None:
        self.warnings: list[str] = []

    def optional(self, where: str, ask: Callable[[], Fact]) -> Fact | None:
        """The answer; None when the GPU does not have the fact, with a warning when NVML failed to say. A lost GPU is not optional."""
        try:
            return ask()
        except NotSupported:
            return None
        except (GpuLost, ResetRequired):
            raise
        except NvmlError as error:
            self.warnings.append(f"{where}: left out: {error}")
            return None


def scan(nvml: Nvml, host: HostPaths, *, known: Mapping[int, Gpu], skip: Mapping[int, str]) -> Scan:
    """Describe every GPU. `known` are the GPUs of an earlier scan of this session by index, `skip` the indices not to touch and why.

    Raises NvmlError only when NVML cannot answer for the node as a whole.
    """
    notes = Notes()
    gpus: dict[int, Gpu] = {}
    faults: list[GpuFault] = []
    for index in range(nvml.gpu_count()):
        reason = skip.get(index)
        if reason is None:
            try:
                gpus[index] = _describe(nvml, host, index, notes)
                continue
            except GpuDraError as error:  # whatever it is, it is this GPU's trouble and no other's
                reason = str(error)
        if index in known:
            gpus[index] = replace(known[index], unhealthy=reason)
        else:
            faults.append(_fault(nvml, index, reason, touch=index not in skip))
    faults += _unlisted(host, {gpu.pci for gpu in gpus.values()}, faults)
    inventory = Inventory(
        state=DriverState.READY,
        driver_version=nvml.driver_version(),
        cuda_driver_version=notes.optional("CUDA version", nvml.cuda_driver_version),
        gpus=tuple(sorted(gpus.values(), key=lambda gpu: gpu.minor)),
        faults=tuple(faults),
        warnings=tuple(notes.warnings),
    )
    return Scan(inventory=inventory, by_index=gpus)


def _describe(nvml: Nvml, host: HostPaths, index: int, notes: Notes) -> Gpu:
    handle = nvml.gpu(index)
    pci = nvml.pci(handle)
    gpu = Gpu(minor=_minor(nvml, host, handle, pci), uuid=nvml.uuid(handle), pci=pci, product_name=nvml.name(handle))
    where = f"{gpu.name} ({pci})"
    brand = notes.optional(f"{where}: brand", lambda: nvml.brand(handle))
    architecture = notes.optional(f"{where}: architecture", lambda: nvml.architecture(handle))
    addressing = notes.optional(f"{where}: addressing mode", lambda: nvml.addressing_mode(handle))
    gpu = replace(
        gpu,
        brand=names.BRANDS.get(brand) if brand is not None else None,
        architecture=names.ARCHITECTURES.get(architecture) if architecture is not None else None,
        cuda_compute_capability=notes.optional(f"{where}: compute capability", lambda: nvml.cuda_compute_capability(handle)),
        memory_bytes=notes.optional(f"{where}: memory", lambda: nvml.memory_bytes(handle)),
        addressing_mode=names.ADDRESSING_MODES.get(addressing) if addressing is not None else None,
        fabric=notes.optional(f"{where}: fabric", lambda: _fabric(nvml, handle)),
        pcie_root=sysfs.pcie_root(host, pci),
        numa_node=sysfs.numa_node(host, pci),
        mig_mode=_mig_mode(nvml, handle),
        unhealthy=_trouble(notes.optional(f"{where}: recovery action", lambda: nvml.recovery_action(handle))),
    )
    if not gpu.in_mig_mode:
        return gpu
    devices = mig_scan.devices(nvml, handle, gpu, notes.warnings)
    if not devices:
        notes.warnings.append(
            f"{where}: in MIG mode without a usable partition, so it offers nothing; make one or turn MIG mode off"
        )
    return replace(gpu, mig_devices=devices)


def _minor(nvml: Nvml, host: HostPaths, handle: GpuHandle, pci: PciAddress) -> int:
    """The minor that NVML or, where it does not say, the kernel driver gives. Raises NvmlError when neither does."""
    try:
        return nvml.minor(handle)
    except NotSupported:
        minor = procfs.device_minor(host, pci)
        if minor is None:
            raise
        return minor


def _mig_mode(nvml: Nvml, handle: GpuHandle) -> MigMode | None:
    """None only where the GPU cannot do MIG: one that may be partitioned must not be offered whole because NVML failed to say."""
    try:
        return nvml.mig_mode(handle)
    except NotSupported:
        return None


def _fabric(nvml: Nvml, handle: GpuHandle) -> Fabric | None:
    """Fabric membership; an HGX box reports a complete fabric with an all-zero cluster UUID, which spans no other node."""
    info = nvml.fabric(handle)
    if info.state != FabricState.COMPLETED or info.status != 0 or info.cluster_uuid.int == 0:
        return None
    return Fabric(cluster_uuid=str(info.cluster_uuid), clique=info.clique)


def _trouble(action: int | None) -> str | None:
    """What a recovery action other than none says about the GPU."""
    if not action:
        return None
    return f"the driver says that the GPU {_ACTIONS.get(action, f'needs recovery action {action}, which is not known here')}"


def _fault(nvml: Nvml, index: int, reason: str, *, touch: bool) -> GpuFault:
    """A GPU that could not be identified, placed as precisely as it still answers."""
    pci: PciAddress | None = None
    if touch:
        try:
            pci = nvml.pci(nvml.gpu(index))
        except GpuDraError:
            pci = None
    return GpuFault(where=str(pci) if pci else f"index {index}", reason=reason, pci=pci)


def _unlisted(host: HostPaths, seen: set[PciAddress], faults: list[GpuFault]) -> list[GpuFault]:
    """GPUs that are bound to the driver and that NVML does not list; none while a fault may be one of them."""
    if any(fault.pci is None for fault in faults):
        return []
    missing = set(sysfs.bound_gpus(host)) - seen - {fault.pci for fault in faults if fault.pci}
    reason = "bound to the nvidia driver and not listed by NVML; look for Xid messages in the kernel log"
    return [GpuFault(where=str(pci), reason=reason, pci=pci) for pci in sorted(missing)]
