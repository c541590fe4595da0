"""Everything that is handed out with a version: wheel, image archive, chart, and the sums of all.

The same commit gives the same bytes for wheel and chart: every time in them is SOURCE_DATE_EPOCH, or the commit's.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from hack.release_tools.chart_archive import pack_chart
from hack.release_tools.errors import ReleaseError
from hack.release_tools.versions import CHART, the_version
from hack.release_tools.wheel import build_wheel

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

ROOT = Path(__file__).resolve().parents[2]
SUMS = "SHA256SUMS"
_OLDEST = 315_532_800
"""1980-01-01: a wheel is a zip file, which knows no earlier time."""
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def main(arguments: Sequence[str] | None = None) -> int:
    """0: all is there; 1: one line says what is not; 2: the command line was wrong."""
    parser = argparse.ArgumentParser(prog="hack/release", description="Build wheel, image archive and chart with their checksums.")
    parser.add_argument("--output", type=Path, default=ROOT / "dist", metavar="DIR", help="where to put them; default dist")
    parser.add_argument("--part", action="append", choices=list(PARTS), help="build only this; repeatable; default all")
    options = parser.parse_args(arguments)
    try:
        release(options.output, options.part or list(PARTS))
    except (ReleaseError, OSError) as error:
        print(f"hack/release: {error}", file=sys.stderr)
        return 1
    return 0


def release(folder: Path, parts: Sequence[str]) -> None:
    """Build `parts` into `folder`. The sums are written last: without them the folder is unfinished. Raises ReleaseError."""
    version, modified = the_version(ROOT), modification_time(ROOT)
    folder.mkdir(parents=True, exist_ok=True)
    for pattern in ("gpu-dra-*.t*", "gpu_dra-*.whl", SUMS):
        for former in folder.glob(pattern):
            former.unlink()
    made = [PARTS[part](folder, version, modified) for part in PARTS if part in parts]
    (folder / SUMS).write_text(sums(made), encoding="utf-8")
    for path in (*made, folder / SUMS):
        print(path)
    if _git(ROOT, "status", "--porcelain"):
        print("hack/release: the checkout has changes that are not committed; these files are not the commit's", file=sys.stderr)


def sums(paths: Sequence[Path]) -> str:
    """Lines as `sha256sum -c` reads them."""
    lines = []
    for path in sorted(paths, key=lambda path: path.name):
        with path.open("rb") as stream:
            lines.append(f"{hashlib.file_digest(stream, 'sha256').hexdigest()}  {path.name}\n")
    return "".join(lines)


def modification_time(root: Path) -> int:
    """The time that all files get, in seconds since 1970. Raises ReleaseError where neither the environment nor git says one."""
    given = os.environ.get("SOURCE_DATE_EPOCH")
    if given is None:
        given = _git(root, "log", "-1", "--format=%ct")
        if not given:
            raise ReleaseError(f"no time for the files: {root} is no git checkout; set SOURCE_DATE_EPOCH")
    if not (given.isascii() and given.isdecimal() and int(given) >= _OLDEST):
        raise ReleaseError(f"SOURCE_DATE_EPOCH: {given!r} is no number of seconds since 1970 that lies after 1979")
    return int(given)


def _git(root: Path, *arguments: str) -> str:
    """What git says, nothing where there is no git or no checkout."""
    try:
        return subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, check=False).stdout.strip()
    except FileNotFoundError:
        return ""


def _wheel(folder: Path, _version: str, modified: int) -> Path:
    return build_wheel(ROOT, folder, modified=modified)


def _image(folder: Path, version: str, modified: int) -> Path:
    architecture = _ARCHITECTURES.get(platform.machine(), platform.machine())
    path = folder.resolve() / f"gpu-dra-{version}-image-{architecture}.tar"
    command = [str(ROOT / "hack/image"), "--output", str(path), "--tag", version]
    try:
        done = subprocess.run(
            command, env={**os.environ, "SOURCE_DATE_EPOCH": str(modified)}, stdout=subprocess.DEVNULL, check=False
        )
    except FileNotFoundError as error:
        raise ReleaseError(f"{command[0]} is missing") from error
    if done.returncode != 0 or not path.exists():
        raise ReleaseError(
            f"hack/image made no archive (exit status {done.returncode}); --part wheel --part chart builds the others"
        )
    return path


def _chart(folder: Path, version: str, modified: int) -> Path:
    path = folder / f"gpu-dra-{version}.tgz"
    path.write_bytes(pack_chart(ROOT / CHART, name="gpu-dra", modified=modified))
    return path


PARTS: dict[str, Callable[[Path, str, int], Path]] = {"wheel": _wheel, "image": _image, "chart": _chart}
