"""The programs that build images, and their command lines. Pure but for the search for one.

Every archive is a `docker save` archive: docker, podman, kind and `ctr images import` all take the full reference from it.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from hack.testbed.cluster.errors import LabError, Say
from hack.testbed.cluster.packages import Package, ensure_packages

NAMES = ("docker", "podman", "buildah")
"""In order of preference."""
BUILDAH = (Package(name="buildah", shown_by=("buildah",)),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """One of NAMES; `store` is a folder for what it stores, which only buildah wants to be told."""

    name: str
    store: Path

    def build(self, context: Path, *, reference: str, arguments: Mapping[str, str], epoch: int) -> list[str]:
        """The command that builds the Dockerfile of `context`. Raises nothing."""
        build_arguments = [word for key, value in arguments.items() for word in ("--build-arg", f"{key}={value}")]
        common = ["build", "--tag", reference, *build_arguments]
        if self.name == "docker":
            return ["docker", *common, "--build-arg", f"SOURCE_DATE_EPOCH={epoch}", str(context)]
        # Without layers a stage is stored once, which is what costs time with vfs.
        common += ["--timestamp", str(epoch), "--layers=false"]
        if self.name == "podman":
            return ["podman", *common, str(context)]
        # chroot isolation and vfs work without any right to mount, so also inside a container.
        return [*self._buildah(), *common, "--isolation", "chroot", "--identity-label=false", str(context)]

    def save(self, reference: str, archive: Path) -> list[str]:
        """The command that writes a built image into a file."""
        match self.name:
            case "docker":
                return ["docker", "save", "--output", str(archive), reference]
            case "podman":
                return ["podman", "save", "--format", "docker-archive", "--output", str(archive), reference]
            case _:
                return [*self._buildah(), "push", "--quiet", reference, f"docker-archive:{archive}:{reference}"]

    def _buildah(self) -> list[str]:
        return [
            "buildah",
            *("--root", str(self.store / "root")),
            *("--runroot", str(self.store / "run")),
            *("--storage-driver", "vfs"),
        ]


def choose(wanted: str | None, *, store: Path, works: Callable[[str], bool], say: Say) -> Engine:
    """The engine that was named, or the first that works here, or buildah from the OS packages. Raises LabError."""
    if wanted is not None and wanted != "buildah" and not works(wanted):
        raise LabError(f"{wanted} does not work here; `{wanted} info` says why, or leave --engine out")
    name = wanted or next(filter(works, NAMES), "buildah")
    if name == "buildah" and not works(name):
        ensure_packages(BUILDAH, say=say)
    return Engine(name=name, store=store)


def works_here(name: str) -> bool:
    """Whether the program is there and, for docker, its daemon answers."""
    if shutil.which(name) is None:
        return False
    probe = [name, "--version"] if name == "buildah" else [name, "info"]
    try:
        return subprocess.run(probe, capture_output=True, check=False, timeout=20).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False
