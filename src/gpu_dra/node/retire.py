"""Leave nothing behind when the product is uninstalled, and everything in place when this process is only replaced.

A plugin that stops cannot tell an update from an end by its signal. Its DaemonSet can: in an update, a drain or a crash it is still
there. Once it is gone (or on its way out), what this node still holds decides: with claims prepared, or with another process of ours
beside us (a release under another name), all stays. Else our slices go and what we made in the data directory, by name and under the
publisher's lock: NVIDIA's driver keeps its own files in the directory of that name.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shutil
from typing import TYPE_CHECKING, Final

from gpu_dra.cdi.naming import uid_of
from gpu_dra.core.errors import GpuDraError
from gpu_dra.kube.api import DAEMON_SETS, RESOURCE_SLICES
from gpu_dra.kube.errors import NotFound
from gpu_dra.node.registering import siblings
from gpu_dra.slices.marks import OURS
from gpu_dra.slices.publisher import PUBLISHER_LOCK

if TYPE_CHECKING:
    from pathlib import Path

    from gpu_dra.core.locks import LockDirectory
    from gpu_dra.kube.api import KubeApi
    from gpu_dra.node.directories import NodeDirectories

log = logging.getLogger(__name__)

OUR_DIRECTORIES: Final = ("claims", "set-aside", "locks", "reserved")
"""In the data directory; the sockets go with their servers."""


async def retire(
    api: KubeApi, *, daemonset: str, driver: str, node_name: str, directories: NodeDirectories, locks: LockDirectory, own: Path
) -> None:
    """Take slices and files away if `daemonset` (namespace/name; empty: never) is gone. Never raises GpuDraError: we are leaving.

    `own` is our registration socket, by whose name we are told from other processes.
    """
    if not daemonset:
        return
    try:
        if not await _is_gone(api, daemonset):
            return
    except GpuDraError as error:
        log.warning("cannot tell whether this is an uninstall, so slices and files stay", extra={"error": str(error)})
        return
    try:
        with locks.trying(PUBLISHER_LOCK) as alone:
            if not alone or siblings(locks, own):
                log.info("uninstalled beside another plugin of this node; slices and files are its own now")
                return
            held = await asyncio.to_thread(held_claims, directories)
            if held:
                log.warning("uninstalled with claims prepared; their files stay", extra={"claim_uids": held})
                return
            await _delete_slices(api, driver=driver, node_name=node_name)
            await asyncio.to_thread(_remove_files, directories.data)
        log.info("uninstalled: slices and files of this node are gone", extra={"directory": str(directories.data)})
    except GpuDraError as error:
        log.warning("uninstalled, and something stays behind", extra={"error": str(error)})


async def _delete_slices(api: KubeApi, *, driver: str, node_name: str) -> None:
    fields = {"spec.nodeName": node_name, "spec.driver": driver}
    for slice_ in (await api.list(RESOURCE_SLICES, field_selector=fields, label_selector=OURS)).items:
        with contextlib.suppress(NotFound):  # the kubelet wipes them, too
            await api.delete(RESOURCE_SLICES, slice_["metadata"]["name"])


def _remove_files(data: Path) -> None:
    for name in OUR_DIRECTORIES:
        shutil.rmtree(data / name, ignore_errors=True)
    with contextlib.suppress(OSError):  # somebody else's files are there
        data.rmdir()


def held_claims(directories: NodeDirectories) -> list[str]:
    """UIDs of claims with a record or a CDI file here. Blocking."""
    records = {path.stem for path in _files(directories.data / "claims") if path.suffix == ".json"}
    specs = {uid for path in _files(directories.cdi) if (uid := uid_of(path.name)) is not None}
    return sorted(records | specs)


def _files(directory: Path) -> list[Path]:
    return list(directory.iterdir()) if directory.is_dir() else []


async def _is_gone(api: KubeApi, daemonset: str) -> bool:
    namespace, _, name = daemonset.partition("/")
    try:
        found = await api.get(DAEMON_SETS, name, namespace=namespace)
    except NotFound:
        return True
    return "deletionTimestamp" in found["metadata"]
