"""What NVML can answer instead of a result, sorted by what the caller can do about it.

Source of the codes: `nvml.h`, `nvmlReturn_t`. A code that has no class of its own is a plain `NvmlError`. Both implementations of
`Nvml` raise these through `error_for`, so that no caller ever sees a number.
"""

from __future__ import annotations

from typing import ClassVar, Final

from gpu_dra.core.errors import Broken, Conflict, GpuDraError, NotReady, Refused


class NvmlError(GpuDraError):
    """A call that NVML did not answer with success."""

    text: ClassVar[str] = "failed"
    """What happened and, where there is one, the way out."""

    def __init__(self, function: str, code: int, detail: str = "") -> None:
        super().__init__(f"{function}: {detail or self.text} (NVML code {code})")
        self.function = function
        """The C function, `nvmlDeviceGetUUID`."""
        self.code = code


class NotSupported(NvmlError, Refused):
    """The GPU or its driver does not have what was asked for; also a function that an older driver lacks."""

    text = "not supported by this GPU or driver"


class InvalidArgument(NvmlError, Refused):
    """NVML refuses the request as it stands."""

    text = "invalid argument"


class NotFound(NvmlError, Refused):
    """No such GPU, instance or MIG device."""

    text = "not found"


class NoPermission(NvmlError, Broken):
    """The process may not; the message says what it lacks."""

    text = "no permission; run the plugin as root, for MIG with CAP_SYS_ADMIN"


class GpuLost(NvmlError, Broken):
    """The GPU has fallen off the bus or cannot be reached."""

    text = "the GPU is lost; look for Xid 79 in the kernel log, then drain the node and reboot it or replace the GPU"


class ResetRequired(NvmlError, Broken):
    """The GPU works again only after a reset."""

    text = "the GPU needs a reset; drain the node and run nvidia-smi --gpu-reset"


class InUse(NvmlError, Conflict):
    """A process or another instance still uses it."""

    text = "in use"


class InsufficientResources(NvmlError, Conflict):
    """Other instances occupy what the new one needs."""

    text = "other instances occupy the slices that this one needs"


class DriverNotLoaded(NvmlError, NotReady):
    """The kernel driver is not there, or not yet."""

    text = "the NVIDIA kernel driver is not loaded; run `modprobe nvidia`, see dmesg if that fails"


class LibraryNotFound(NvmlError, NotReady):
    """No usable `libnvidia-ml.so.1`."""

    text = "libnvidia-ml.so.1 was not found; install the NVIDIA driver or set --nvidia-driver-root"


class VersionMismatch(NvmlError, NotReady):
    """Library and kernel module are of different driver versions."""

    text = "the driver library and the loaded kernel module are of different versions; reboot the node or reload the module"


class Uninitialized(NvmlError, NotReady):
    """NVML is not open now."""

    text = "NVML is not open"


class Timeout(NvmlError, NotReady):
    """NVML itself gave up waiting."""

    text = "NVML gave up waiting"


CLASSES: Final[dict[int, type[NvmlError]]] = {
    1: Uninitialized,
    2: InvalidArgument,
    3: NotSupported,
    4: NoPermission,
    6: NotFound,
    9: DriverNotLoaded,
    10: Timeout,
    12: LibraryNotFound,
    13: NotSupported,  # FunctionNotFound: the driver is older than the call
    15: GpuLost,
    16: ResetRequired,
    18: VersionMismatch,
    19: InUse,
    23: InsufficientResources,
    25: NotSupported,  # ArgumentVersionMismatch: the driver does not know this version of a structure
    28: NotFound,  # GpuNotFound
}
"""Class by NVML return code."""


def error_for(function: str, code: int, detail: str = "") -> NvmlError:
    """The exception for an NVML return code other than 0. `detail` replaces the standing text, NVML's own words for instance."""
    return CLASSES.get(code, NvmlError)(function, code, detail)
