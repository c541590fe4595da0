"""Which boot of the kernel this is: after another one, nothing that was done to the host is there any more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpu_dra.core.errors import Broken

if TYPE_CHECKING:
    from gpu_dra.hardware.host import HostPaths


def read_boot_id(host: HostPaths) -> str:
    """The kernel's boot id (`/proc/sys/kernel/random/boot_id`, random(4)). Blocking. Raises Broken."""
    path = host.proc / "sys/kernel/random/boot_id"
    try:
        return path.read_text().strip()
    except OSError as error:
        raise Broken(f"{path}: {error.strerror}; mount the host's /proc or name it with --proc-root") from error
