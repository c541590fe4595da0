"""Names and rights of the two sockets the kubelet knows us by.

Rules from the kubelet (k8s.io/kubelet, pluginwatcher): it watches the registry directory, dials the endpoint by the path that GetInfo
names, and treats the removal of the registration socket as deregistration. Two plugin processes may overlap in a rolling update when
their sockets have different names, hence the pod UID in them (source: dynamic-resource-allocation kubeletplugin, RollingUpdate).
"""

from __future__ import annotations

import base64
import hashlib
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gpu_dra.core.errors import Conflict, Refused
from gpu_dra.core.locks import LockDirectory

if TYPE_CHECKING:
    from collections.abc import Iterable

MOST_PATH_BYTES = 107
"""Linux `sockaddr_un.sun_path` is 108 bytes with its terminating zero."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SocketPaths:
    """Where the DRA service and the registration service listen."""

    dra: Path
    registration: Path


def plan_sockets(driver: str, *, plugins_directory: Path, registrar_directory: Path, pod_uid: str) -> SocketPaths:
    """Choose both paths; shortens the pod UID when the path would not fit the kernel. Raises Refused when nothing fits."""
    data_directory = plugins_directory / driver
    if not pod_uid:
        names = [("dra.sock", f"{driver}-reg.sock")]
    else:
        short, shortest = _digest(pod_uid, 8), _digest(f"{driver}\0{pod_uid}", 16)
        names = [
            (f"dra-{pod_uid}.sock", f"{driver}-{pod_uid}-reg.sock"),
            (f"dra-{short}.sock", f"{driver}-{short}-reg.sock"),
            (f"dra-{short}.sock", f"dra-{shortest}-reg.sock"),
        ]
    for dra_name, registration_name in names:
        paths = SocketPaths(dra=data_directory / dra_name, registration=registrar_directory / registration_name)
        if max(len(os.fsencode(paths.dra)), len(os.fsencode(paths.registration))) <= MOST_PATH_BYTES:
            return paths
    long, flag = max(
        (paths.dra, "--kubelet-plugins-directory-path"),
        (paths.registration, "--kubelet-registrar-directory-path"),
        key=lambda entry: len(os.fsencode(entry[0])),
    )
    raise Refused(
        f"socket path {long} has {len(os.fsencode(long))} bytes, the kernel takes at most {MOST_PATH_BYTES}; "
        f"set {flag} to a shorter directory"
    )


def claim_name(path: Path, locks: LockDirectory) -> int:
    """Make sure that no living process serves `path`, remove what a dead one left, and return the lock to hold while serving.

    Binding over a live socket would silently steal it. Raises Conflict when another process serves it, Refused when something that is
    not a socket is in the way.
    """
    descriptor = locks.try_hold(path.name)
    if descriptor is None:
        raise Conflict(f"another gpu-dra node process serves {path}; stop it, or give this one its own --pod-uid")
    try:
        if os.path.lexists(path):
            if not stat.S_ISSOCK(path.lstat().st_mode):
                raise Refused(f"{path} exists and is not a socket; remove it")
            path.unlink()
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def sweep_names(directories: Iterable[Path], locks: LockDirectory) -> None:
    """Remove the sockets, and their locks, of processes that were killed under another pod UID; a held lock means a living owner."""
    for name in locks.names():
        if not name.endswith(".sock"):
            continue
        with locks.trying(name) as held:
            if held:
                for path in (directory / name for directory in directories):
                    if path.is_socket():
                        path.unlink(missing_ok=True)
                locks.remove(name)


def _digest(text: str, length: int) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()[:length]).decode().rstrip("=")
