"""Where labs may be kept. Pure but for the reading of the mount table."""

from __future__ import annotations

import re
from pathlib import Path

from hack.testbed.cluster.errors import LabError
from hack.testbed.cluster.node_mounts import OVERLAID

_HIDDEN = ("/dev", "/proc", "/run", "/sys", "/var/run", *OVERLAID)
"""A node has its own of these, so a lab below them would be out of its sight."""
_NO_UPPER_LAYER = {"overlay", "nfs", "nfs4", "fuse", "9p", "virtiofs"}
"""File systems that cannot hold the upper layer of an overlay, as nodes and containerd need it."""


def check_place(labs: Path, mountinfo: str) -> None:
    """Raise LabError when no lab can live in the folder `labs`; `mountinfo` is a /proc/<pid>/mountinfo."""
    if re.search(r"[\s:,\\]", str(labs)):
        raise LabError(
            f"labs cannot be kept in {str(labs)!r}: mount options take no blank, colon, comma or backslash; set GPU_DRA_LABS"
        )
    for hidden in _HIDDEN:
        if labs.is_relative_to(hidden):
            raise LabError(f"labs cannot be kept in {labs}: nodes have a {hidden} of their own; set GPU_DRA_LABS to another folder")
    kind = file_system_of(labs, mountinfo)
    if kind.split(".")[0] in _NO_UPPER_LAYER:
        raise LabError(
            f"labs cannot be kept in {labs}, which is on {kind}; set GPU_DRA_LABS to a folder on a disk, or mount a volume there"
        )


def file_system_of(path: Path, mountinfo: str) -> str:
    """Type of the file system that a path is on: that of the longest mount point above it, of several there the last."""
    best, kind = Path("/"), "unknown"
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        point = Path(before.split()[4])
        if path.is_relative_to(point) and len(point.parts) >= len(best.parts):
            best, kind = point, after.split()[0]
    return kind
