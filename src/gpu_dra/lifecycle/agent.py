"""The agent of one node: put its parts together, start and stop them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from gpu_dra.core.clock import SystemClock
from gpu_dra.core.errors import NotReady, Refused
from gpu_dra.core.locks import LockDirectory
from gpu_dra.core.tasks import supervise
from gpu_dra.hardware.boot import read_boot_id
from gpu_dra.hardware.driver_root import find_library
from gpu_dra.hardware.pynvml_adapter import PynvmlAdapter
from gpu_dra.hardware.reservations import Reservations
from gpu_dra.hardware.worker import NvmlWorker
from gpu_dra.kube.events import EventRecorder
from gpu_dra.kube.http import HttpKubeApi
from gpu_dra.kube.kubeconfig import server_for_daemon
from gpu_dra.lifecycle.mig.label import MigLabels
from gpu_dra.lifecycle.mig.manager import MigManager
from gpu_dra.lifecycle.mig.wish import parse
from gpu_dra.lifecycle.node_look import NodeLook

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from gpu_dra.hardware.host import HostPaths
    from gpu_dra.lifecycle.mig.wish import Rule

log = logging.getLogger(__name__)

OTHER_AGENT_SECONDS: Final = 30.0
"""For the agent of before to end; the kubelet starts this one again after that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSettings:
    """What the command line says."""

    node_name: str
    kubeconfig: Path | None
    host: HostPaths
    plugin_data: Path
    """The plugin's data directory, where reservations are left for it."""
    mig_config_file: Path | None
    root: Path
    """The host's root directory as we see it."""


def read_configs(path: Path | None) -> dict[str, tuple[Rule, ...]]:
    """The configurations of the administrator's file, read anew each time, since a mounted ConfigMap changes. Raises Refused."""
    if path is None:
        return {}
    try:
        return parse(path.read_text(), where=str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise Refused(f"--mig-config-file {path} cannot be read: {error}") from error


def serve(settings: AgentSettings) -> None:
    """Work until SIGTERM or SIGINT. Raises GpuDraError when it cannot start."""
    asyncio.run(_serve(settings))


async def _serve(settings: AgentSettings) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with alone(settings):
        await _work(settings, stop)


@contextlib.asynccontextmanager
async def alone(settings: AgentSettings, *, within: float = OTHER_AGENT_SECONDS) -> AsyncIterator[None]:
    """Two agents would end each other's reservations. Raises NotReady when the other one does not end."""
    held = LockDirectory(settings.plugin_data / "locks").hold(["agent"], within=within)
    async with contextlib.AsyncExitStack() as stack:
        try:
            await stack.enter_async_context(held)
        except NotReady as error:
            raise NotReady(f"another gpu-dra agent works on this node and must end first: {error}") from error
        yield


async def _work(settings: AgentSettings, stop: asyncio.Event) -> None:
    clock = SystemClock()
    api = HttpKubeApi(server_for_daemon(settings.kubeconfig, os.environ), clock=clock)
    worker = NvmlWorker(_nvml(settings.host))
    events = EventRecorder(api, clock=clock, component="gpu-dra-agent", instance=settings.node_name)
    manager = MigManager(
        api,
        worker,
        Reservations(settings.plugin_data, boot_id=read_boot_id(settings.host)),
        node_name=settings.node_name,
        host=settings.host,
        configs=partial(read_configs, settings.mig_config_file),
        clock=clock,
    )
    labels = MigLabels(api, manager, events, node_name=settings.node_name, clock=clock)
    look = NodeLook(
        api,
        events,
        manager=manager,
        labels=labels,
        node_name=settings.node_name,
        host=settings.host,
        root=settings.root,
        clock=clock,
    )
    work = {"events": events.run, "labels": labels.watch, "MIG": labels.run, "look": look.run}
    tasks = [asyncio.create_task(supervise(name, each, clock=clock), name=name) for name, each in work.items()]
    log.info("agent works", extra={"node": settings.node_name})
    try:
        await stop.wait()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        worker.close()
        await api.close()


def _nvml(host: HostPaths) -> PynvmlAdapter:
    return PynvmlAdapter(lambda: find_library(host.driver_root, "libnvidia-ml.so.1", on_host=host.host_driver_root))
