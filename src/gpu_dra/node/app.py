"""Put the node's rooms together, start them in order, stop them in order.

Start: settings are checked, probes are answered, NVML is asked in its own thread, the DRA socket opens, then the registration socket;
slices flow as soon as the first scan is there. Stop (SIGTERM): readiness goes first, then the registration socket, then calls in flight
finish, probes last; slices stay, since a successor takes over. Only a failed start ends the process: what breaks later is reported and
started again.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import signal
from functools import partial
from typing import TYPE_CHECKING

from gpu_dra.claims.manager import ClaimSettings
from gpu_dra.claims.room import open_claims
from gpu_dra.core.clock import SystemClock
from gpu_dra.core.locks import LockDirectory
from gpu_dra.core.tasks import supervise
from gpu_dra.hardware.boot import read_boot_id
from gpu_dra.hardware.reservations import Reservations
from gpu_dra.kube.events import EventRecorder
from gpu_dra.kube.http import HttpKubeApi
from gpu_dra.kube.kubeconfig import server_for_daemon
from gpu_dra.node import dra_service, health_stream, machine
from gpu_dra.node.coexistence import Coexistence
from gpu_dra.node.directories import NodeDirectories
from gpu_dra.node.dra_service import DraService
from gpu_dra.node.health_stream import HealthService
from gpu_dra.node.metrics import NodeMetrics
from gpu_dra.node.node_report import NodeReport
from gpu_dra.node.observers import ClaimMetrics, SliceMetrics
from gpu_dra.node.offers import Offers
from gpu_dra.node.probes import Probes, serving_grpc_health, serving_http
from gpu_dra.node.registering import Registering
from gpu_dra.node.registration import RegistrationService
from gpu_dra.node.reserved import ReservedGpus, UnreservedInventories
from gpu_dra.node.retire import retire
from gpu_dra.node.servers import serving
from gpu_dra.node.sockets import SocketPaths, claim_name, plan_sockets, sweep_names
from gpu_dra.slices.publisher import SlicePublisher

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

    from gpu_dra.core.clock import Clock
    from gpu_dra.kube.api import KubeApi
    from gpu_dra.node.settings import NodeSettings

log = logging.getLogger(__name__)

DRAIN_SECONDS = 2.0
"""For which we still serve after the registration socket is gone: the kubelet looks every second, and calls us until it has."""
GRACE_SECONDS = 20.0
"""For calls in flight at SIGTERM; below the 30 s that Kubernetes grants a pod by default."""


def serve(settings: NodeSettings, *, driver: str) -> None:
    """Run the node plugin until SIGTERM or SIGINT. Raises GpuDraError when it cannot start."""
    asyncio.run(_serve(settings, driver=driver))


async def _serve(settings: NodeSettings, *, driver: str) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with contextlib.AsyncExitStack() as stack:
        node = await _start(settings, stack, driver=driver)
        gc.collect()
        gc.freeze()  # what lives for ever need not be looked at in each collection
        log.info("node plugin started", extra={"node": settings.node_name, "driver": driver, "pid": os.getpid()})
        await stop.wait()
        node.stopping = True
        log.info("stopping; ResourceSlices stay for the successor")


async def _start(settings: NodeSettings, stack: contextlib.AsyncExitStack, *, driver: str) -> Probes:
    """Bring everything up; what must be undone is on `stack`, in the order in which it must stop."""
    clock = SystemClock()
    directories = NodeDirectories.make(settings, driver=driver)
    locks = LockDirectory(directories.locks)
    sockets = _own_sockets(settings, locks, stack, driver=driver)
    api = HttpKubeApi(server_for_daemon(settings.kubeconfig, os.environ), clock=clock)
    stack.push_async_callback(api.close)
    stack.push_async_callback(
        retire,
        api,
        daemonset=settings.daemonset,
        driver=driver,
        node_name=settings.node_name,
        directories=directories,
        locks=locks,
        own=sockets.registration,
    )
    metrics = NodeMetrics(driver=driver, node=settings.node_name)
    reserved = ReservedGpus(Reservations(directories.data, boot_id=read_boot_id(settings.host)), clock=clock)
    the_machine = machine.open_machine(settings, clock=clock, lent=reserved.is_exclusive)
    discovery = the_machine.discovery
    stack.push_async_callback(discovery.close)
    slices = SliceMetrics(metrics, clock)
    publisher = SlicePublisher(api, driver=driver, node_name=settings.node_name, clock=clock, locks=locks, observer=slices)
    claims = open_claims(
        directories.data,
        settings=ClaimSettings(driver=driver, pool=settings.node_name),
        api=api,
        inventories=UnreservedInventories(discovery, reserved),
        specs=the_machine.specs,
        builder=the_machine.builder,
        host=settings.host,
        observer=ClaimMetrics(metrics),
        clock=clock,
    )
    stack.callback(claims.manager.close)
    registration = RegistrationService(
        driver=driver,
        endpoint=sockets.dra,
        versions=(*dra_service.SUPPORTED_VERSIONS, *health_stream.SUPPORTED_VERSIONS),
        on_registered=publisher.resync,
    )
    coexistence = Coexistence(
        api,
        driver=driver,
        node_name=settings.node_name,
        registrar=settings.registrar_directory,
        locks=locks,
        beside_device_plugin=settings.beside_device_plugin,
        clock=clock,
    )
    probes = Probes(
        sockets,
        directories=(directories.cdi, directories.data),
        inventories=discovery,
        registration=registration.state,
        unpublished=lambda: coexistence.obstacle or slices.unpublished,
    )
    await _serve_probes(settings, stack, probes, metrics)
    offers = Offers(
        discovery, coexistence, reserved, publisher, api,
        metrics=metrics, node_name=settings.node_name, taken=registration.taken,
    )  # fmt: skip
    background: dict[str, Callable[[], Awaitable[None]]] = {
        "discovery": discovery.run,
        "coexistence": coexistence.run,
        "reserved": partial(reserved.run, discovery.refresh),
        "offers": offers.run,
        "slices": publisher.run,
        "reconcile": claims.reconciler.run,
    }
    farewell = contextlib.AsyncExitStack()
    if settings.report_to_node:
        background |= _reports(settings, api, probes, slices, clock, farewell=farewell)
    await stack.enter_async_context(_running(background, clock))
    await stack.enter_async_context(farewell)
    health = HealthService(discovery, pool=settings.node_name, clock=clock)
    services = [*DraService(claims.manager, metrics).handlers(), *health.handlers()]
    await stack.enter_async_context(serving(sockets.dra, services, grace=GRACE_SECONDS))
    stack.callback(health.end)
    if settings.pod_uid:
        stack.push_async_callback(clock.sleep, DRAIN_SECONDS)
    registering = Registering(
        sockets.registration, registration, coexistence=coexistence, inventories=discovery, locks=locks, clock=clock
    )
    await stack.enter_async_context(registering.registered())
    return probes


def _own_sockets(settings: NodeSettings, locks: LockDirectory, stack: contextlib.AsyncExitStack, *, driver: str) -> SocketPaths:
    """Choose our sockets' paths, make sure that nobody else serves them, and sweep those of the dead."""
    sockets = plan_sockets(
        driver,
        plugins_directory=settings.plugins_directory,
        registrar_directory=settings.registrar_directory,
        pod_uid=settings.pod_uid,
    )
    for path in (sockets.dra, sockets.registration):
        stack.callback(os.close, claim_name(path, locks))
    sweep_names((sockets.dra.parent, sockets.registration.parent), locks)
    return sockets


def _reports(
    settings: NodeSettings,
    api: KubeApi,
    probes: Probes,
    slices: SliceMetrics,
    clock: Clock,
    *,
    farewell: contextlib.AsyncExitStack,
) -> dict[str, Callable[[], Awaitable[None]]]:
    """The work that tells on the Node object how things stand; its last word goes to `farewell`."""
    events = EventRecorder(api, clock=clock, component="gpu-dra-node", instance=settings.node_name)
    report = NodeReport(
        api,
        node_name=settings.node_name,
        troubles=probes.why_not_offered,
        speaks=lambda: not slices.stands_by,
        events=events,
        clock=clock,
    )
    farewell.push_async_callback(report.end)
    return {"events": events.run, "node report": report.run}


async def _serve_probes(settings: NodeSettings, stack: contextlib.AsyncExitStack, probes: Probes, metrics: NodeMetrics) -> None:
    """Open the ports that are wanted; before the kubelet hears of us, so that a port that is taken ends the start and nothing else."""
    if settings.http_endpoint:
        await stack.enter_async_context(serving_http(probes, metrics, endpoint=settings.http_endpoint))
    if settings.healthcheck_port >= 0:
        port = await stack.enter_async_context(serving_grpc_health(probes, port=settings.healthcheck_port))
        log.info("serving grpc.health.v1", extra={"port": port})


@contextlib.asynccontextmanager
async def _running(work: Mapping[str, Callable[[], Awaitable[None]]], clock: Clock) -> AsyncIterator[None]:
    """Keep every piece of work running until the block ends."""
    tasks = [asyncio.create_task(supervise(name, one, clock=clock), name=name) for name, one in work.items()]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
