"""`gpu-dra node`: the kubelet plugin of one node.

Flags and environment variables carry the names of NVIDIA's driver where it has them. Heavy rooms are imported only after the settings
were found good, so that a typing error answers at once.
"""

from __future__ import annotations

import argparse
import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

from gpu_dra import DRIVER_NAME
from gpu_dra.cli import host
from gpu_dra.cli.flags import OBJECT_NAME, absolute, add_flag, add_kubeconfig, add_node_name, node_name, object_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpu_dra.node.settings import NodeSettings


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser("node", help="publish this node's GPUs and prepare claims for the kubelet")
    _add_cluster_flags(parser)
    _add_host_flags(parser)
    _add_service_flags(parser)
    parser.set_defaults(run=run)


def _add_cluster_flags(parser: argparse.ArgumentParser) -> None:
    add_node_name(parser)
    add_kubeconfig(parser)
    add_flag(parser, "--pod-uid", env="POD_UID", default="", help="UID of this pod, so that two plugins overlap in an update")
    add_flag(
        parser, "--daemonset", env="DAEMONSET", default="", type=_namespaced_name_if_given,
        help="namespace/name of this pod's DaemonSet; when it is gone at our end, slices and files go too",
    )  # fmt: skip
    add_flag(
        parser, "--device-plugin", env="DEVICE_PLUGIN", default="refuse", choices=("refuse", "allow"),
        help="refuse: offer nothing where NVIDIA's device plugin advertises GPUs; allow: it offers other GPUs of the node",
    )  # fmt: skip
    add_flag(
        parser, "--report-to-node", env="REPORT_TO_NODE", default="false", choices=("true", "false"),
        help="keep a condition on the Node that says whether its GPUs are offered, and write Events",
    )  # fmt: skip
    host.add_plugins_directory(parser)
    add_flag(
        parser, "--kubelet-registrar-directory-path", env="KUBELET_REGISTRAR_DIRECTORY_PATH",
        default="/var/lib/kubelet/plugins_registry", type=absolute, help="the directory the kubelet watches for plugins",
    )  # fmt: skip


def _add_host_flags(parser: argparse.ArgumentParser) -> None:
    add_flag(
        parser, "--cdi-root", env="CDI_ROOT", default="/var/run/cdi", type=absolute,
        help="where the container runtime looks for CDI files",
    )  # fmt: skip
    host.add_host_flags(parser)
    add_flag(
        parser, "--nvidia-cdi-hook-path", env="NVIDIA_CDI_HOOK_PATH", default="", type=host.absolute_if_given,
        help="nvidia-cdi-hook as the host sees it; empty looks below the driver root",
    )  # fmt: skip
    add_flag(
        parser, "--simulate", env="GPU_DRA_SIMULATE", default="",
        help="pretend to be a machine, e.g. h100x8, where there is no GPU; claims get environment variables only",
    )  # fmt: skip


def _add_service_flags(parser: argparse.ArgumentParser) -> None:
    add_flag(
        parser, "--http-endpoint", env="HTTP_ENDPOINT", default="", type=_endpoint,
        help="host:port for /metrics, /healthz and /readyz; empty: off",
    )  # fmt: skip
    add_flag(
        parser, "--healthcheck-port", env="HEALTHCHECK_PORT", default="-1", type=_port,
        help="port of grpc.health.v1; -1: off, 0: a free one",
    )  # fmt: skip
    host.add_log_flags(parser)


def run(options: argparse.Namespace) -> int:
    """Serve until SIGTERM or SIGINT. Raises GpuDraError when it cannot start."""
    from gpu_dra.node.settings import NodeSettings  # noqa: PLC0415 - after the flags were parsed

    name = node_name(options)
    pod_uid = object_name("--pod-uid", options.pod_uid) if options.pod_uid else ""
    settings: NodeSettings = NodeSettings(
        node_name=name,
        host=host.host_paths(options, cdi_hook=options.nvidia_cdi_hook_path),
        cdi_root=options.cdi_root,
        plugins_directory=options.kubelet_plugins_directory_path,
        registrar_directory=options.kubelet_registrar_directory_path,
        pod_uid=pod_uid,
        kubeconfig=Path(options.kubeconfig) if options.kubeconfig else None,
        http_endpoint=options.http_endpoint,
        healthcheck_port=options.healthcheck_port,
        beside_device_plugin=options.device_plugin == "allow",
        report_to_node=options.report_to_node == "true",
        daemonset=options.daemonset,
        simulate=options.simulate,
    )
    host.configure_logs(options)
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # what goes wrong comes as an exception, and is told once
    with _without_system_ca_bundle():
        from gpu_dra.node.app import serve  # noqa: PLC0415 - pulls in grpc and aiohttp
    serve(settings, driver=DRIVER_NAME)
    return 0


@contextlib.contextmanager
def _without_system_ca_bundle() -> Iterator[None]:
    """Spare aiohttp's import two readings of the system's CA bundle (1.5 MiB, 0.1 s): the daemon trusts the cluster's CA alone."""
    before = os.environ.get("SSL_CERT_FILE")
    os.environ["SSL_CERT_FILE"] = os.devnull
    try:
        yield
    finally:
        if before is None:
            del os.environ["SSL_CERT_FILE"]
        else:
            os.environ["SSL_CERT_FILE"] = before


def _namespaced_name_if_given(text: str) -> str:
    if text and not (text.count("/") == 1 and all(OBJECT_NAME.fullmatch(part) for part in text.split("/"))):
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form namespace/name")
    return text


def _endpoint(text: str) -> str:
    _, colon, port = text.rpartition(":")
    if text and not (colon and port.isascii() and port.isdecimal() and int(port) <= 65535):
        raise argparse.ArgumentTypeError(f"{text!r} is not host:port, e.g. 127.0.0.1:8080 or :8080")
    return text


def _port(text: str) -> int:
    try:
        port = int(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number") from error
    if not -1 <= port <= 65535:
        raise argparse.ArgumentTypeError(f"{port} is not between -1 and 65535")
    return port
