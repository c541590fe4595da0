"""`gpu-dra agent`: the part that changes a node; today, how its GPUs are cut."""

from __future__ import annotations

import argparse
from pathlib import Path

from gpu_dra import DRIVER_NAME
from gpu_dra.cli import host
from gpu_dra.cli.flags import add_flag, add_kubeconfig, add_node_name, node_name


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser(
        "agent", help="cut this node's GPUs into MIG partitions as the node's label nvidia.com/mig.config says"
    )
    add_node_name(parser)
    add_kubeconfig(parser)
    add_flag(
        parser, "--mig-config-file", env="MIG_CONFIG_FILE", default="", type=host.absolute_if_given,
        help="configurations in mig-parted's format; without it there are those that the GPUs' own profiles give",
    )  # fmt: skip
    host.add_plugins_directory(parser)
    host.add_host_flags(parser)
    host.add_log_flags(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Work until SIGTERM or SIGINT. Raises GpuDraError when it cannot start."""
    from gpu_dra.lifecycle import agent  # noqa: PLC0415 - pulls in aiohttp

    settings = agent.AgentSettings(
        node_name=node_name(options),
        kubeconfig=Path(options.kubeconfig) if options.kubeconfig else None,
        host=host.host_paths(options),
        plugin_data=options.kubelet_plugins_directory_path / DRIVER_NAME,
        mig_config_file=options.mig_config_file,
    )
    host.configure_logs(options)
    agent.serve(settings)
    return 0
