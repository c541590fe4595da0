"""Build the tools of `catalog` from the Go modules in `hack/go` into the cache, with progress, once per content.

The key of a cache entry is what decides the result: go.mod, go.sum and the build flags. Not here: where Go comes from (`go_toolchain`).
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import time
from pathlib import Path

from hack.testbed.cluster.cache import cache_folder, make_once
from hack.testbed.cluster.catalog import Tool
from hack.testbed.cluster.errors import LabError, Say

MODULES = Path(__file__).resolve().parents[2] / "go"
_PROGRESS_EVERY_S = 10.0
_LOG_TAIL_LINES = 15


def cache_key(tool: Tool, modules: Path = MODULES) -> str:
    """Twelve hex digits over everything that decides what is built."""
    digest = hashlib.sha256()
    for part in (modules / tool.name / "go.mod", modules / tool.name / "go.sum"):
        digest.update(part.read_bytes())
    digest.update(repr((sorted(tool.programs.items()), tool.flags, tool.cgo)).encode())
    return digest.hexdigest()[:12]


def tool_folder(tool: Tool) -> Path:
    """Where the programs of this tool are, or will be."""
    return cache_folder() / "tools" / f"{tool.name}-{cache_key(tool)}"


def ensure_built(tool: Tool, *, go: Path, say: Say) -> Path:
    """Return the folder with the tool's programs, building it if need be (minutes for Kubernetes). Raises LabError."""
    return make_once(tool_folder(tool), lambda folder: _build(tool, folder, go=go, say=say), say=say)


def build_command(tool: Tool, folder: Path, *, go: Path) -> list[str]:
    """The `go build` that leaves the tool's programs in `folder`."""
    # With several packages go names each program after its import path; a single one may carry another name (etcd).
    output = str(folder) + "/" if len(tool.programs) > 1 else str(folder / next(iter(tool.programs)))
    return [str(go), "build", "-v", "-mod=readonly", *tool.flags, "-o", output, *tool.programs.values()]


def _build(tool: Tool, folder: Path, *, go: Path, say: Say) -> None:
    log = folder.parent / f"{tool.name}.log"
    say(f"building {tool.name} {tool.version} (once; log: {log})")
    # Flags and workspaces of the person's own Go settings must not change what is built.
    environment = {**os.environ, "CGO_ENABLED": str(int(tool.cgo)), "GOFLAGS": "", "GOWORK": "off", "GOTOOLCHAIN": "local"}
    started = time.monotonic()
    with log.open("w") as output:
        build = subprocess.Popen(
            build_command(tool, folder, go=go), cwd=MODULES / tool.name, env=environment, stdout=output, stderr=subprocess.STDOUT
        )
        try:
            _wait(build, tool, log, started, say)
        except BaseException:
            build.terminate()
            build.wait()
            raise
    if build.returncode != 0:
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-_LOG_TAIL_LINES:])
        raise LabError(f"building {tool.name} {tool.version} failed; the end of {log}:\n{tail}")
    say(f"built {tool.name} in {time.monotonic() - started:.0f} s")


def _wait(build: subprocess.Popen[bytes], tool: Tool, log: Path, started: float, say: Say) -> None:
    while True:
        try:
            build.wait(timeout=_PROGRESS_EVERY_S)
        except subprocess.TimeoutExpired:
            lines = log.read_text(errors="replace").splitlines()
            doing = lines[-1] if lines else "resolving modules"
            say(f"building {tool.name}: {time.monotonic() - started:.0f} s, {len(lines)} steps, now {doing}")
        else:
            return
