"""Put the claims room together: its directories, its journal, and the two who work on them."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpu_dra.claims.effects import NoSideEffects
from gpu_dra.claims.host_work import HostWork
from gpu_dra.claims.journal import Journal
from gpu_dra.claims.manager import ClaimManager, ClaimSettings
from gpu_dra.claims.nvidia_checkpoint import find_nvidia_checkpoint
from gpu_dra.claims.ports import Unobserved
from gpu_dra.claims.reconcile import Reconciler
from gpu_dra.claims.threads import Threads
from gpu_dra.claims.users import ContainerUsers
from gpu_dra.core.clock import SystemClock
from gpu_dra.core.locks import LockDirectory
from gpu_dra.hardware.boot import read_boot_id

if TYPE_CHECKING:
    from pathlib import Path

    from gpu_dra.claims.ports import ClaimsObserver, DeviceUsers, Inventories, SideEffects, SpecBuilder, SpecStore
    from gpu_dra.core.clock import Clock
    from gpu_dra.hardware.host import HostPaths
    from gpu_dra.kube.api import KubeApi

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimsRoom:
    """What the node runs."""

    manager: ClaimManager
    reconciler: Reconciler


def open_claims(
    plugin_directory: Path,
    *,
    settings: ClaimSettings,
    api: KubeApi,
    inventories: Inventories,
    specs: SpecStore,
    builder: SpecBuilder,
    host: HostPaths,
    effects: SideEffects | None = None,
    users: DeviceUsers | None = None,
    observer: ClaimsObserver | None = None,
    clock: Clock | None = None,
) -> ClaimsRoom:
    """Open the state in `plugin_directory`, made where missing. Blocking. Raises Broken when it cannot be used."""
    journal = Journal(plugin_directory)
    journal.create_directories()
    locks = LockDirectory(plugin_directory / "locks")
    boot_id = read_boot_id(host)
    threads = Threads()
    observer = observer or Unobserved()
    _report_nvidia_checkpoint(plugin_directory)
    work = HostWork(journal=journal, specs=specs, builder=builder, effects=effects or NoSideEffects(), boot_id=boot_id)
    manager = ClaimManager(
        settings=settings, work=work, locks=locks, threads=threads, api=api, inventories=inventories, observer=observer
    )
    reconciler = Reconciler(
        settings=settings,
        manager=manager,
        journal=journal,
        specs=specs,
        locks=locks,
        threads=threads,
        api=api,
        users=users or ContainerUsers(host, boot_id=boot_id),
        observer=observer,
        clock=clock or SystemClock(),
        boot_id=boot_id,
    )
    return ClaimsRoom(manager=manager, reconciler=reconciler)


def _report_nvidia_checkpoint(plugin_directory: Path) -> None:
    checkpoint = find_nvidia_checkpoint(plugin_directory)
    if checkpoint is None:
        return
    facts = {"path": str(checkpoint.path), "claims": len(checkpoint.claims), "unreadable": checkpoint.unreadable}
    log.warning("found the checkpoint of NVIDIA's driver; it is left alone", extra=facts)
