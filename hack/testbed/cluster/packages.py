"""The programs and files that come from the operating system, and the Debian and Ubuntu packages that bring them.

A package is wanted only while one of its files is missing, so a machine that has them from elsewhere needs no apt.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hack.testbed.cluster.errors import LabError, Say

CNI_PLUGINS = Path("/usr/lib/cni")
_SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """An OS package and what shows that it is there: programs on PATH or absolute files."""

    name: str
    shown_by: tuple[str, ...]

    def present(self) -> bool:
        return all(Path(sign).exists() if sign.startswith("/") else shutil.which(sign, path=_SYSTEM_PATH) for sign in self.shown_by)


TO_BUILD = (
    Package(name="gcc", shown_by=("gcc",)),
    Package(name="libc6-dev", shown_by=("/usr/include/stdio.h",)),
    Package(name="pkg-config", shown_by=("pkg-config",)),
    Package(name="libseccomp-dev", shown_by=("/usr/include/seccomp.h",)),
)
TO_RUN = (
    Package(
        name="containernetworking-plugins", shown_by=(f"{CNI_PLUGINS}/ptp", f"{CNI_PLUGINS}/portmap", f"{CNI_PLUGINS}/host-local")
    ),
    Package(name="iproute2", shown_by=("ip",)),
    Package(name="iptables", shown_by=("iptables", "iptables-save")),
    Package(name="conntrack", shown_by=("conntrack",)),
    Package(name="busybox-static", shown_by=("busybox",)),
    Package(name="openssl", shown_by=("openssl",)),
    Package(name="util-linux", shown_by=("nsenter",)),
    Package(name="mount", shown_by=("mount", "umount")),
    Package(name="ca-certificates", shown_by=("/etc/ssl/certs",)),
)


def ensure_packages(packages: tuple[Package, ...], *, say: Say) -> None:
    """Install what is missing where that is possible. Raises LabError with the exact list where it is not."""
    missing = [package.name for package in packages if not package.present()]
    if not missing:
        return
    apt = shutil.which("apt-get", path=_SYSTEM_PATH)
    if apt is None or os.geteuid() != 0:
        raise LabError(cannot_install(missing, apt=apt is not None))
    say(f"installing OS packages: {' '.join(missing)}")
    _install(apt, missing)
    absent = [package.name for package in packages if not package.present()]
    if absent:
        raise LabError(f"apt installed {' '.join(absent)}, yet what they should bring is not in its place; see `dpkg -L`")


def cannot_install(missing: Sequence[str], *, apt: bool) -> str:
    """What to tell a person who has to install packages by hand."""
    why = "installing them needs root" if apt else "this is not Debian or Ubuntu"
    return f"OS packages are missing and {why}; install these (Debian's names) and try again: {' '.join(missing)}"


def _install(apt: str, names: list[str]) -> None:
    """Once with the lists that are here, and once more after an update if that failed: a fresh image has no lists."""
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    command = [apt, "install", "--yes", "--quiet", "--no-install-recommends", *names]
    if subprocess.run(command, env=environment, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0:
        return
    subprocess.run([apt, "update", "--quiet"], env=environment, check=False, stdout=subprocess.DEVNULL)
    again = subprocess.run(command, env=environment, check=False, capture_output=True, text=True)
    if again.returncode != 0:
        raise LabError(f"apt could not install {' '.join(names)}:\n{again.stderr.strip()}")
