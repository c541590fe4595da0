"""Where this project says its version. All places must say the same; nothing here repairs one."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from hack.release_tools.errors import ReleaseError

CHART = Path("helm/gpu-dra")
_PLACES = {
    "package (src/gpu_dra/__init__.py)": (Path("src/gpu_dra/__init__.py"), re.compile(r'^__version__ = "([^"]+)"$', re.MULTILINE)),
    "newest heading of CHANGELOG.md": (Path("CHANGELOG.md"), re.compile(r"^## (\S+)", re.MULTILINE)),
}
_CHART_PLACES = {
    "version of helm/gpu-dra/Chart.yaml": re.compile(r"""^version:[ ]*["']?([^"'\s#]+)""", re.MULTILINE),
    "appVersion of helm/gpu-dra/Chart.yaml": re.compile(r"""^appVersion:[ ]*["']?([^"'\s#]+)""", re.MULTILINE),
}


def declared_versions(root: Path) -> dict[str, str]:
    """Each place below `root` and the version it states; the chart only where there is one. Raises ReleaseError for a place without one."""
    found = {"pyproject.toml": _of_pyproject(root / "pyproject.toml")}
    for place, (path, pattern) in _PLACES.items():
        found[place] = _search(pattern, _text(root / path), place)
    chart = root / CHART / "Chart.yaml"
    if chart.exists():
        text = _text(chart)
        found.update({place: _search(pattern, text, place) for place, pattern in _CHART_PLACES.items()})
    return found


def the_version(root: Path) -> str:
    """The one version. Raises ReleaseError that lists the places when they differ."""
    found = declared_versions(root)
    if len(set(found.values())) > 1:
        raise ReleaseError("versions differ: " + ", ".join(f"{place} says {version}" for place, version in found.items()))
    return next(iter(found.values()))


def _of_pyproject(path: Path) -> str:
    try:
        return str(tomllib.loads(_text(path))["project"]["version"])
    except (tomllib.TOMLDecodeError, KeyError) as error:
        raise ReleaseError(f"{path}: no [project] version to be read: {error}") from error


def _search(pattern: re.Pattern[str], text: str, place: str) -> str:
    match = pattern.search(text)
    if match is None:
        raise ReleaseError(f"{place}: no version found")
    return match.group(1)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise ReleaseError(f"{path}: {error.strerror}") from error
