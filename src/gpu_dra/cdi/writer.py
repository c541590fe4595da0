"""The directory where the container runtime looks for CDI files; touches only the files this driver wrote.

One file per claim, JSON in `k8s.gpu.nvidia.com-claim_<uid>.yaml`. The name is that of NVIDIA's driver: under another one, a file it
left behind would define the same device twice, and a device defined twice is unusable (container-device-interface `pkg/cdi/cache.go`).
Blocking; every call costs what its own claim costs, however many other files are there.
"""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, Final

from gpu_dra.cdi.naming import CLAIM_KIND, device_name, file_name, uid_of
from gpu_dra.cdi.spec import Spec, parse
from gpu_dra.core.errors import Broken, NotReady
from gpu_dra.core.files import remove_durably, temporary_for, write_atomically

if TYPE_CHECKING:
    from pathlib import Path

_TWIN_SUFFIX: Final = ".json"
_WAYS_OUT: Final = {
    errno.ENOENT: "it does not exist; create it or name the runtime's directory with --cdi-root",
    errno.ENOTDIR: "it is not a directory; name the runtime's directory with --cdi-root",
    errno.EROFS: "it is read-only; mount the host's directory writable or name another with --cdi-root",
    errno.EACCES: "no permission; run as root or name another with --cdi-root",
    errno.EPERM: "no permission; run as root or name another with --cdi-root",
    errno.ENOSPC: "the file system is full; free space, or name a directory elsewhere with --cdi-root",
    errno.EDQUOT: "the disk quota is used up; free space, or name a directory elsewhere with --cdi-root",
}


class SpecDirectory:
    """The claims' files in one CDI directory (`--cdi-root`)."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def path(self, uid: str) -> Path:
        """Where the claim's file is or would be. Raises Refused for a UID that is none."""
        return self._directory / file_name(uid)

    def write(self, uid: str, spec: Spec) -> None:
        """Put the claim's file in place, durably, and remove a twin that would make its devices ambiguous. Raises NotReady."""
        path = self.path(uid)
        try:
            path.with_suffix(_TWIN_SUFFIX).unlink(missing_ok=True)
            write_atomically(path, spec.to_json())
        except OSError as error:
            raise self._not_ready("write", error) from error

    def remove(self, uid: str) -> bool:
        """Delete the claim's file and its twin, durably; False when there was none. Raises NotReady."""
        path = self.path(uid)
        try:
            path.with_suffix(_TWIN_SUFFIX).unlink(missing_ok=True)
            return remove_durably(path)
        except OSError as error:
            raise self._not_ready("delete from", error) from error

    def read(self, uid: str) -> Spec | None:
        """The claim's spec; None when there is no file. Raises Broken for a damaged or foreign one, NotReady when it cannot be read."""
        path = self.path(uid)
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._not_ready("read", error) from error
        try:
            return parse(content)
        except Broken as error:
            raise Broken(f"{path}: {error}") from error

    def read_intact(self, uid: str) -> Spec | None:
        """The claim's spec when the runtime would find its devices: the file is there, is whole, and no twin stands beside it."""
        try:
            spec = self.read(uid)
        except (Broken, NotReady):
            return None
        if spec is None or spec.kind != CLAIM_KIND:
            return None
        named_for_it = all(device.name.startswith(device_name(uid, "")) for device in spec.devices)
        return spec if named_for_it and not self.path(uid).with_suffix(_TWIN_SUFFIX).exists() else None

    def exists_intact(self, uid: str) -> bool:
        """True when the runtime would find the claim's devices."""
        return self.read_intact(uid) is not None

    def uids(self) -> frozenset[str]:
        """Claims that have a file here, damaged ones included; no file is opened. Raises NotReady."""
        try:
            names = os.listdir(self._directory)  # noqa: PTH208 - names alone; a Path per foreign file costs ten times as much
        except OSError as error:
            raise self._not_ready("list", error) from error
        return frozenset(uid for name in names if (uid := uid_of(name)) is not None)

    def leftovers(self) -> dict[str, str]:
        """Temporary files that killed writers left, by name, with the UID they were for. Raises NotReady."""
        try:
            finals = {path.name: temporary_for(path.name) for path in self._directory.glob(".*.tmp")}
        except OSError as error:
            raise self._not_ready("list", error) from error
        uids = {name: uid_of(final) for name, final in finals.items() if final}
        return {name: uid for name, uid in uids.items() if uid}

    def remove_leftover(self, name: str) -> None:
        """Delete a temporary file. The caller holds the lock of the claim it was for. Raises NotReady."""
        try:
            (self._directory / name).unlink(missing_ok=True)
        except OSError as error:
            raise self._not_ready("delete from", error) from error

    def _not_ready(self, action: str, error: OSError) -> NotReady:
        otherwise = f"{error.strerror}: {error.filename2 or error.filename}; check the directory given with --cdi-root"
        way_out = _WAYS_OUT.get(error.errno or 0, otherwise)
        return NotReady(f"cannot {action} CDI directory {self._directory}: {way_out}")
