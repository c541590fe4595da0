"""Build the wheel with the hatchling that uv.lock pins, so that neither the day nor the network has a say in its bytes."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from hack.release_tools.errors import ReleaseError


def build_wheel(root: Path, folder: Path, *, modified: int) -> Path:
    """Build the project at `root` into `folder`, every entry as of `modified` seconds since 1970. Raises ReleaseError."""
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(modified)}
    with tempfile.TemporaryDirectory(dir=folder, prefix="gpu-dra-wheel-") as fresh:
        command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(Path(fresh).resolve())]
        done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)
        built = list(Path(fresh).glob("*.whl"))
        if done.returncode != 0 or len(built) != 1:
            said = (done.stderr.strip() or done.stdout.strip() or "nothing said").splitlines()[-1]
            raise ReleaseError(f"the wheel could not be built: {said}; is the virtual environment there (make venv)?")
        return built[0].rename(folder / built[0].name)
