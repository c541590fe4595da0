"""The image that the Dockerfile starts from: a public one, or where no registry can be reached the same from Debian's packages."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import urllib.error
import urllib.request
from pathlib import Path

from hack.testbed.cluster.cache import make_once
from hack.testbed.cluster.errors import LabError, Say
from hack.testbed.cluster.packages import Package, ensure_packages

PUBLIC = "docker.io/library/debian:trixie-slim"
LOCAL = "localhost/gpu-dra-base"
SUITE = "trixie"
PYTHON = "3.13"
"""The minor version of `python3-minimal` in SUITE; wheels for an offline build are chosen by it."""
INCLUDED = ("python3-minimal", "libpython3-stdlib", "libstdc++6")
"""As in the Dockerfile. The C++ library is for grpcio."""
TO_MAKE = (
    Package(name="mmdebstrap", shown_by=("mmdebstrap",)),
    Package(name="debian-archive-keyring", shown_by=("/usr/share/keyrings/debian-archive-keyring.gpg",)),
)

_SOURCES = (
    f"deb http://deb.debian.org/debian {SUITE} main",
    f"deb http://deb.debian.org/debian {SUITE}-updates main",
    f"deb http://deb.debian.org/debian-security {SUITE}-security main",
)
_OPTIONS = (
    "--variant=essential",  # without apt
    f"--include={','.join(INCLUDED)}",
    *(f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in ("man", "locale", "info", "doc")),
    "--dpkgopt=path-include=/usr/share/doc/*/copyright",
    '--customize-hook=rm -f "$1/etc/hostname" "$1/etc/hosts" "$1/etc/resolv.conf"',  # they are those of this machine
)
_HUB = "registry-1.docker.io"


def registry_host(image: str) -> str:
    """The host that serves an image reference. Source: Docker's reference grammar; a first part without dot or port is a name."""
    first, slash, _ = image.partition("/")
    if not slash or not ("." in first or ":" in first or first == "localhost"):
        return _HUB
    return _HUB if first in {"docker.io", "index.docker.io"} else first


def registry_answers(image: str, *, timeout_s: float = 5) -> bool:
    """Whether the image's registry talks to us, asking for credentials included. Source: OCI distribution, `GET /v2/`."""
    try:
        with urllib.request.urlopen(f"https://{registry_host(image)}/v2/", timeout=timeout_s):
            return True
    except urllib.error.HTTPError as error:
        return error.code == 401
    except OSError:
        return False


def base_key(arch: str) -> str:
    """What the local base is made of; a new list of packages makes a new base."""
    return hashlib.sha256(json.dumps([arch, _OPTIONS, _SOURCES]).encode()).hexdigest()[:16]


def make_base(cache: Path, *, arch: str, say: Say) -> Path:
    """The root file system as a tar file below `cache`. Raises LabError."""
    return make_once(cache / f"image-base-{base_key(arch)}", lambda folder: _make(folder, arch, say), say=say) / "base.tar"


def _make(folder: Path, arch: str, say: Say) -> None:
    ensure_packages(TO_MAKE, say=say)
    say(f"making a base of Debian {SUITE} with Python {PYTHON}, as no registry answers")
    command = ["mmdebstrap", "--quiet", f"--architectures={arch}", *_OPTIONS, SUITE, str(folder / "base.tar"), *_SOURCES]
    environment = {**os.environ, "SOURCE_DATE_EPOCH": "0"}
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise LabError(f"no base image: {PUBLIC} cannot be pulled, and mmdebstrap could not make one:\n{result.stderr.strip()}")
