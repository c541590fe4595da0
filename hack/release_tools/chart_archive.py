"""Pack a Helm chart so that the same files give the same bytes.

`helm package` writes the time of packing into the archive, and so never the same twice. Layout as Helm reads it: one gzipped tar named
`<name>-<version>.tgz`, every file below a folder with the chart's name, `Chart.yaml` first, no entries for folders, mode 0644, no owner
(https://helm.sh/docs/topics/charts/). `.helmignore` is honoured, in the part of its syntax that charts use.
"""

from __future__ import annotations

import fnmatch
import gzip
import io
import tarfile
from typing import TYPE_CHECKING

from hack.release_tools.errors import ReleaseError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path, PurePath

_IGNORE_FILE = ".helmignore"


def pack_chart(chart: Path, *, name: str, modified: int) -> bytes:
    """The archive's bytes; `modified` is the time of every file, in seconds since 1970. Raises ReleaseError where there is no chart."""
    if not (chart / "Chart.yaml").is_file():
        raise ReleaseError(f"{chart}: no chart there, Chart.yaml is missing")
    tar_bytes = io.BytesIO()
    with tarfile.open(fileobj=tar_bytes, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for path in _files(chart):
            content = path.read_bytes()
            entry = tarfile.TarInfo(f"{name}/{path.relative_to(chart).as_posix()}")
            entry.size, entry.mtime, entry.mode = len(content), modified, 0o644
            archive.addfile(entry, io.BytesIO(content))
    packed = io.BytesIO()
    with gzip.GzipFile(filename="", fileobj=packed, mode="wb", compresslevel=9, mtime=0) as stream:
        stream.write(tar_bytes.getvalue())
    return packed.getvalue()


def _files(chart: Path) -> Sequence[Path]:
    """Chart.yaml first, the rest by name, without what `.helmignore` leaves out."""
    ignored = _ignore_rules(chart / _IGNORE_FILE)
    found = [path for path in _walk(chart) if path.name != _IGNORE_FILE and not _is_ignored(path.relative_to(chart), ignored)]
    return sorted(found, key=lambda path: (path != chart / "Chart.yaml", path.relative_to(chart).as_posix()))


def _walk(chart: Path) -> Iterator[Path]:
    for path in chart.rglob("*"):
        if path.is_symlink():
            raise ReleaseError(f"{path}: a link; a chart must hold what it needs")
        if path.is_file():
            yield path


def _ignore_rules(path: Path) -> Sequence[str]:
    if not path.exists():
        return ()
    lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
    rules = [line for line in lines if line and not line.startswith("#")]
    for rule in rules:
        if rule.startswith("!") or "**" in rule:
            raise ReleaseError(f"{path}: {rule!r}: exceptions and ** are not understood here; name the files")
    return rules


def _is_ignored(path: PurePath, rules: Sequence[str]) -> bool:
    """Whether a rule covers the file or a folder it lies in. A rule without a slash is about the last part of the path alone."""
    candidates = [(path, False), *((folder, True) for folder in path.parents if folder.name)]
    return any(_covers(rule, candidate, is_folder) for rule in rules for candidate, is_folder in candidates)


def _covers(rule: str, path: PurePath, is_folder: bool) -> bool:
    if rule.endswith("/"):
        if not is_folder:
            return False
        rule = rule[:-1]
    if "/" in rule:
        return fnmatch.fnmatchcase(path.as_posix(), rule.lstrip("/"))
    return fnmatch.fnmatchcase(path.name, rule)
