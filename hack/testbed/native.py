"""Build the test bed's small C programs: one source file, static, kept in a cache by content."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from pathlib import Path

from hack.testbed.cluster.cache import make_once
from hack.testbed.cluster.errors import LabError, Say

# Without a build id and with section garbage dropped, the same source and compiler give the same bytes.
_FLAGS = ("-std=c11", "-O2", "-Wall", "-Wextra", "-static", "-s", "-Wl,--build-id=none")


def static_program(source: Path, *, cache: Path, say: Say) -> Path:
    """Compile `source` to a static executable below `cache`, or find it there. Raises LabError when that does not work."""
    content = source.read_bytes()
    key = hashlib.sha256(content + " ".join(_FLAGS).encode()).hexdigest()[:16]
    folder = make_once(cache / f"{source.stem}-{key}", lambda temporary: _compile(source, temporary / source.stem), say=say)
    return folder / source.stem


def _compile(source: Path, output: Path) -> None:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise LabError(f"{source.name} needs a C compiler and there is none: apt-get install gcc libc6-dev")
    result = subprocess.run([compiler, *_FLAGS, "-o", str(output), str(source)], capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise LabError(
            f"{compiler} cannot build {source}; is the static C library there (apt-get install libc6-dev)?\n{result.stderr}"
        )
