"""Where the host's trees are, as this process sees them and as the container runtime sees them.

In a pod the host's `/proc`, `/sys`, `/dev` and driver root are mounts under other names, and a container's own `/proc` shows the
container; hence every path to the host goes through this object.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class HostPaths:
    """Roots of the host's trees. The defaults fit a process that runs on the host itself."""

    proc: Path = Path("/proc")
    sys: Path = Path("/sys")
    dev: Path = Path("/dev")
    driver_root: Path = Path("/")
    """The driver's installation as we see it (`/driver-root` in a pod, `/run/nvidia/driver`, `/`)."""
    host_driver_root: Path = Path("/")
    """The same directory as the container runtime sees it; what CDI files name."""
    cdi_hook: Path | None = None
    """`nvidia-cdi-hook` as the runtime sees it; None to look for it below the driver root."""

    def on_host(self, path: Path) -> Path:
        """Translate a path below `driver_root` to how the container runtime sees it."""
        return self.host_driver_root / path.relative_to(self.driver_root)
