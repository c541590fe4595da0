#!/usr/bin/env python3
"""Lay the locked distributions that the image needs, and gpu-dra itself, into one folder.

Runs on the machine that builds (for any architecture and Python) or inside the Dockerfile (for its own), so it needs the standard
library and uv only. Hashes are those of uv.lock.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

LEFT_OUT = ("kubernetes",)
"""With what only they need. The official client is 75 MiB for kubeconfigs whose users need code; a pod has its service account."""
PLATFORMS = {"amd64": "x86_64-manylinux_2_28", "arm64": "aarch64-manylinux_2_28"}
"""Architectures as image tools name them, and their wheels by the C library of Debian 11 and later (PEP 600)."""


def fetch(*, uv: str, project: Path, output: Path, arch: str | None = None, python: str | None = None) -> None:
    """Fill `output`; `arch` and `python` ("3.13") only for another machine than this one. Raises CalledProcessError, KeyError."""
    target = ["--python", sys.executable] if arch is None else ["--python-platform", PLATFORMS[arch], "--only-binary", ":all:"]
    target += ["--python-version", python] if python else []
    prune = [word for name in LEFT_OUT for word in ("--prune", name)]
    export = ["export", "--quiet", "--frozen", "--no-dev", "--no-emit-project", "--format", "requirements-txt", *prune]
    install = [uv, "pip", "install", "--quiet", "--no-deps", "--link-mode", "copy", "--target", str(output), *target]
    with tempfile.TemporaryDirectory() as temporary:
        requirements, wheels = Path(temporary, "requirements.txt"), Path(temporary, "wheels")
        _run([uv, *export, "--project", str(project), "--output-file", str(requirements)])
        _run([*install, "--require-hashes", "--requirements", str(requirements)])
        _run([uv, "build", "--quiet", "--wheel", "--python", sys.executable, "--out-dir", str(wheels), str(project)])
        _run([*install, *map(str, wheels.glob("*.whl"))])


def _run(command: list[str]) -> None:
    environment = {key: value for key, value in os.environ.items() if key != "VIRTUAL_ENV"}
    subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--uv", required=True, help="the program")
    parser.add_argument("--project", type=Path, required=True, help="folder of pyproject.toml and uv.lock")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--arch", choices=sorted(PLATFORMS), help="default: this machine's")
    parser.add_argument("--python", metavar="X.Y", help="default: this Python's")
    options = parser.parse_args()
    fetch(uv=options.uv, project=options.project, output=options.output, arch=options.arch, python=options.python)


if __name__ == "__main__":
    main()
