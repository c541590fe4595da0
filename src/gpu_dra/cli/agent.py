"""`gpu-dra agent`: says what a node lacks, and changes what it is asked to change: today, how its GPUs are cut."""

from __future__ import annotations

import argparse
from pathlib import Path

from gpu_dra import DRIVER_NAME
from gpu_dra.cli import host
from gpu_dra.cli.flags import absolute, add_flag, add_kubeconfig, add_node_name, node_name


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser(
        "agent", help="say what this GPU node lacks, and cut its GPUs into MIG partitions as its label says"
    )
    add_node_name(parser)
    add_kubeconfig(parser)
    add_flag(
        parser, "--mig-config-file", env="MIG_CONFIG_FILE", default="", type=host.absolute_if_given,
        help="configurations in mig-parted's format; without it there are those that the GPUs' own profiles give",
    )  # fmt: skip
    add_flag(
        parser, "--host-root", env="GPU_DRA_HOST_ROOT", default="/", type=absolute,
        help="the host's root directory as this process sees it; read only",
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
        root=options.host_root,
    )
    host.configure_logs(options)
    agent.serve(settings)
    return 0
