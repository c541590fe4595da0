"""An NVML session that is opened when it can be, opened anew when it must be, and explains itself when it cannot.

Blocking; runs on the NVML thread. A session knows the GPUs, the kernel module and the library that were there when it began, so another
set of bound GPUs, another module version or another library file needs a new one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from gpu_dra.core.errors import Broken, GpuDraError
from gpu_dra.hardware import mig_scan, procfs, sysfs
from gpu_dra.hardware.nvml_errors import DriverNotLoaded, GpuLost, LibraryNotFound, NvmlError, VersionMismatch
from gpu_dra.hardware.scan import Scan, scan
from gpu_dra.model.inventory import DriverState, Inventory

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from gpu_dra.hardware.host import HostPaths
    from gpu_dra.hardware.nvml import Nvml
    from gpu_dra.model.gpu import Gpu
    from gpu_dra.model.pci import PciAddress

Fingerprint = tuple[object, ...]
_Ground: TypeAlias = "tuple[tuple[PciAddress, ...], str | None]"
"""The GPUs bound to the driver, and the version of its kernel module."""

_STATES: tuple[tuple[type[NvmlError], DriverState], ...] = (
    (LibraryNotFound, DriverState.LIBRARY_NOT_FOUND),
    (DriverNotLoaded, DriverState.DRIVER_NOT_LOADED),
    (VersionMismatch, DriverState.VERSION_MISMATCH),
)


class NvmlSession:
    """The session of one node; every method gets the NVML to use, since the thread behind it may change."""

    def __init__(self, host: HostPaths) -> None:
        self._host = host
        self._open = False
        self._ground: _Ground = ((), None)
        self._known: Mapping[int, Gpu] = {}

    def look(self, nvml: Nvml, skip: Mapping[int, str]) -> Inventory:
        """A scan; or an inventory without GPUs that says why there can be none. `skip`: GPUs not to touch, by index, and why."""
        try:
            if not (self._open and skip):  # a thread is inside the library: it must not be closed under it
                self._renew(nvml)
            found = scan(nvml, self._host, known=self._known, skip=skip)
        except GpuDraError as error:
            if not skip:
                self.close(nvml)
            return self._explain(error)
        return self._judge(nvml, found)

    def fingerprint(self, nvml: Nvml, skip: Collection[int]) -> Fingerprint:
        """Cheap facts that differ when a scan would find something else. `skip`: GPUs not to touch, by index.

        An exchanged library file is not among them: looking for it costs as much as all the others, and a scan does it.
        """
        if not self._open:
            return ("closed",)
        try:
            facts: list[object] = [self._stand()]
        except Broken as error:
            return ("unreadable", str(error))
        facts += [_pulse(nvml, index, gpu) for index, gpu in self._known.items() if index not in skip]
        return tuple(facts)

    def close(self, nvml: Nvml) -> None:
        """End the session, so that the driver can be exchanged."""
        if self._open:
            nvml.close()
        self._open = False
        self._known = {}

    def _renew(self, nvml: Nvml) -> None:
        ground = self._stand()
        if self._open and (ground != self._ground or nvml.is_superseded()):
            self.close(nvml)
        if not self._open:
            nvml.open()
            self._open, self._ground = True, ground

    def _stand(self) -> _Ground:
        """What a session stands on; a module that was loaded anew, or for more GPUs, knows nothing of the old one."""
        return sysfs.bound_gpus(self._host), procfs.driver_version(self._host)

    def _judge(self, nvml: Nvml, found: Scan) -> Inventory:
        self._known = found.by_index
        inventory = found.inventory
        if inventory.gpus or inventory.faults:
            return inventory
        self.close(nvml)  # GPUs that come later are seen by a new session only
        present = sysfs.nvidia_gpus(self._host)
        if not present:
            return Inventory(state=DriverState.NO_GPU, reason=_NO_GPU)
        reason = (
            f"NVML lists no GPU although {len(present)} are on the PCI bus ({', '.join(map(str, present))}); "
            "none is bound to the nvidia driver yet, see dmesg"
        )
        return Inventory(state=DriverState.DRIVER_NOT_LOADED, reason=reason)

    def _explain(self, error: GpuDraError) -> Inventory:
        if isinstance(error, LibraryNotFound | DriverNotLoaded) and not sysfs.nvidia_gpus(self._host):
            return Inventory(state=DriverState.NO_GPU, reason=_NO_GPU)
        state = next((state for kind, state in _STATES if isinstance(error, kind)), DriverState.UNRESPONSIVE)
        try:
            version = procfs.driver_version(self._host)
        except Broken:  # what could not be read may be just that
            version = None
        reason = f"{error}; the kernel module is {version or 'unknown'}" if isinstance(error, VersionMismatch) else str(error)
        return Inventory(state=state, reason=reason, driver_version=version)


_NO_GPU = "no NVIDIA GPU is on this node's PCI bus; the plugin is not needed here"


def _pulse(nvml: Nvml, index: int, gpu: Gpu) -> object:
    """Whether a GPU still answers, and its partitions."""
    try:
        handle = nvml.gpu(index)
        if gpu.mig_mode is None:
            return nvml.recovery_action(handle)
        mode = nvml.mig_mode(handle)
        return mode, mig_scan.uuids(nvml, handle) if mode.current else (), nvml.recovery_action(handle)
    except GpuLost:
        return "lost"
    except NvmlError as error:
        return error.code
