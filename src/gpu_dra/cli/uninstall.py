"""`gpu-dra uninstall`: what the chart runs before it removes anything."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from gpu_dra.cli.flags import add_kubeconfig

if TYPE_CHECKING:
    from gpu_dra.kube.api import KubeApi


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser("uninstall", help="end the plugins and leave nothing behind in the cluster and on the nodes")
    add_kubeconfig(parser)
    parser.add_argument("--namespace", required=True, help="where it is installed")
    parser.add_argument("--daemonset", action="append", default=[], required=True, help="name of a DaemonSet to end; repeatable")
    parser.add_argument("--instance", required=True, help="the release, as in the label app.kubernetes.io/instance of its pods")
    parser.add_argument(
        "--wait-for-claims", choices=("true", "false"), default="true", help="refuse while pods hold GPU claims; false goes on"
    )
    parser.add_argument(
        "--clear-label", action="append", default=[], metavar="LABEL",
        help="take this label off the nodes; only one that we set ourselves; repeatable",
    )  # fmt: skip
    parser.add_argument("--timeout", type=float, default=120.0, help="seconds to wait for them")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """All steps in order. Raises GpuDraError; a later run goes on where this one stopped."""
    from gpu_dra.cli.cluster import with_api  # noqa: PLC0415 - pulls in aiohttp
    from gpu_dra.core.clock import SystemClock  # noqa: PLC0415
    from gpu_dra.lifecycle.uninstall import Uninstall  # noqa: PLC0415

    async def work(api: KubeApi) -> None:
        steps = Uninstall(api, namespace=options.namespace, clock=SystemClock())
        if options.wait_for_claims == "true":
            await steps.wait_for_holders(seconds=options.timeout)
        for node in await steps.end_plugins(options.daemonset, instance=options.instance):
            print(f"node {node} is down: what the plugin wrote there stays", flush=True)
        if options.wait_for_claims == "true":
            await steps.refuse_latecomers()
        for node in await steps.sweep():
            print(f"node {node}: slices deleted; its plugin did not end in order, so files may stay", flush=True)
        await steps.clear_nodes(options.clear_label)
        print("plugins ended; their slices and conditions are gone", flush=True)

    with_api(Path(options.kubeconfig) if options.kubeconfig else None, work)
    return 0
