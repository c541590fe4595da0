"""`gpu-dra detect` and `gpu-dra label-node`: find GPU nodes and label them."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from gpu_dra.cli.flags import absolute, add_flag, add_kubeconfig, add_node_name, node_name

if TYPE_CHECKING:
    from gpu_dra.kube.api import KubeApi


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add both subcommands."""
    detect = subparsers.add_parser("detect", help="label this node when it has NVIDIA GPUs, and when it has none any more")
    add_node_name(detect)
    add_kubeconfig(detect)
    add_flag(detect, "--sys-root", env="GPU_DRA_SYS_ROOT", default="/sys", type=absolute, help="the host's /sys")
    detect.set_defaults(run=run_detect)
    label = subparsers.add_parser("label-node", help="set the label nvidia.com/gpu.present of a node")
    add_node_name(label)
    add_kubeconfig(label)
    label.add_argument("--gpu-present", choices=("true", "false"), required=True, help="what the label is to say")
    label.set_defaults(run=run_label)


def run_detect(options: argparse.Namespace) -> int:
    """Look until SIGTERM or SIGINT. Raises GpuDraError when it cannot start."""
    import os  # noqa: PLC0415 - the child's environment is ours

    from gpu_dra.lifecycle import detect  # noqa: PLC0415 - after the flags were parsed

    os.environ["NODE_NAME"] = node_name(options)
    if options.kubeconfig:
        os.environ["KUBECONFIG"] = options.kubeconfig
    detect.block_signals()
    detect.watch(options.sys_root, tell=detect.tell_by_child, stopped=detect.sleep_until_signal)
    return 0


def run_label(options: argparse.Namespace) -> int:
    """Compare the label and write it where it differs. Raises GpuDraError."""
    from gpu_dra.cli.cluster import with_api  # noqa: PLC0415 - pulls in aiohttp
    from gpu_dra.lifecycle.label import label_node  # noqa: PLC0415

    async def label(api: KubeApi) -> None:
        if await label_node(api, node_name(options), present=options.gpu_present == "true"):
            print(f"node {options.node_name}: nvidia.com/gpu.present={options.gpu_present}", flush=True)

    with_api(Path(options.kubeconfig) if options.kubeconfig else None, label)
    return 0
