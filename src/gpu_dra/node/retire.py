"""Leave nothing behind when the product is uninstalled, and everything in place when this process is only replaced.

A plugin that stops cannot tell an update from an end by its signal. Its DaemonSet can: in an update, a drain or a crash it is still
there. Once it is gone (or on its way out), what this node still holds decides: with claims prepared, files and slices stay for whoever
installs the product again; without, they go.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
from typing import TYPE_CHECKING

from gpu_dra.cdi.naming import uid_of
from gpu_dra.core.errors import GpuDraError
from gpu_dra.kube.api import DAEMON_SETS, RESOURCE_SLICES
from gpu_dra.kube.errors import NotFound
from gpu_dra.slices.marks import OURS

if TYPE_CHECKING:
    from pathlib import Path

    from gpu_dra.kube.api import KubeApi
    from gpu_dra.node.directories import NodeDirectories

log = logging.getLogger(__name__)


async def retire(api: KubeApi, *, daemonset: str, driver: str, node_name: str, directories: NodeDirectories) -> None:
    """Take slices and files away if `daemonset` (namespace/name; empty: never) is gone. Never raises GpuDraError: we are leaving."""
    if not daemonset:
        return
    try:
        if not await _is_gone(api, daemonset):
            return
    except GpuDraError as error:
        log.warning("cannot tell whether this is an uninstall, so slices and files stay", extra={"error": str(error)})
        return
    try:
        held = await asyncio.to_thread(held_claims, directories)
        if held:
            log.warning("uninstalled with claims prepared; their files stay", extra={"claim_uids": held})
            return
        fields = {"spec.nodeName": node_name, "spec.driver": driver}
        for slice_ in (await api.list(RESOURCE_SLICES, field_selector=fields, label_selector=OURS)).items:
            await api.delete(RESOURCE_SLICES, slice_["metadata"]["name"])
        await asyncio.to_thread(shutil.rmtree, directories.data, ignore_errors=True)
        log.info("uninstalled: slices and files of this node are gone", extra={"directory": str(directories.data)})
    except GpuDraError as error:
        log.warning("uninstalled, and something stays behind", extra={"error": str(error)})


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
