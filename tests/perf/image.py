"""What the image weighs, and what each role of it that only waits takes in memory."""

from __future__ import annotations

import gzip
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from hack.container import build
from hack.testbed.cluster.errors import say_on_stderr

if TYPE_CHECKING:
    from tests.perf.process import ProcessFigures

SETTLED_SECONDS = 3


def image_figures() -> dict[str, float]:
    """Of the archive that `hack/image` builds, as it is loaded and about as a registry would send it."""
    archive = build.image(say=say_on_stderr).archive
    return {
        "image, unpacked, MiB": round(archive.stat().st_size / 2**20, 1),
        "image, gzip, MiB": round(len(gzip.compress(archive.read_bytes(), compresslevel=6)) / 2**20, 1),
    }


def detector_figures(figures_of: type[ProcessFigures], bus: Path) -> dict[str, float]:
    """The detector on a machine without a GPU, whose child could tell nobody: what stays is what it costs on every node."""
    command = [sys.executable, "-OOPs", "-m", "gpu_dra", "detect", "--node-name", "plain", "--sys-root", str(bus)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={"KUBECONFIG": "/nonexistent"})
    try:
        time.sleep(SETTLED_SECONDS)
        return {f"detector, {kind}, MiB": round(value, 1) for kind, value in figures_of(process.pid).memory_mib().items()}
    finally:
        process.terminate()
        process.wait(10)
