"""The directories the node plugin works in, made and checked before anything else starts."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gpu_dra.core.errors import Broken

if TYPE_CHECKING:
    from gpu_dra.node.settings import NodeSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeDirectories:
    """Where state lives: `data` is `<kubelet plugins>/<driver>`, which survives a restart and, but for the boot id, a reboot."""

    data: Path
    locks: Path
    registrar: Path
    cdi: Path

    @classmethod
    def make(cls, settings: NodeSettings, *, driver: str) -> NodeDirectories:
        """Create what is missing. Raises Broken naming the directory, the flag and the reason."""
        data = settings.plugins_directory / driver
        directories = cls(data=data, locks=data / "locks", registrar=settings.registrar_directory, cdi=settings.cdi_root)
        for path, mode, flag in (
            (directories.data, 0o750, "--kubelet-plugins-directory-path"),
            (directories.registrar, 0o750, "--kubelet-registrar-directory-path"),
            (directories.cdi, 0o755, "--cdi-root"),
        ):
            _make_writable(path, mode=mode, flag=flag)
        return directories


def _make_writable(path: Path, *, mode: int, flag: str) -> None:
    try:
        path.mkdir(mode=mode, parents=True, exist_ok=True)
    except OSError as error:
        raise Broken(f"cannot make directory {path}: {error.strerror}; run as root or set {flag}") from error
    if not os.access(path, os.W_OK | os.X_OK):
        raise Broken(f"cannot write to directory {path} as user {os.geteuid()}; run as root or set {flag}")
