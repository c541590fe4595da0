"""The command `hack/mock-host/mock-host`: lay a mock host, put it in place, look at it."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from hack.testbed.cluster.cache import cache_folder
from hack.testbed.cluster.errors import LabError, say_on_stderr
from hack.testbed.driver_files import DriverPrograms
from hack.testbed.mock_host import DRIVER_ROOT, HostTree, cdi_hook_program, lay
from hack.testbed.mock_nvml import build
from hack.testbed.profiles import load_machine, machine_names

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one subcommand; 1 with a line on stderr when it cannot do its work."""
    options = _parser().parse_args(arguments)
    try:
        options.run(options)
    except (LabError, OSError) as error:
        print(f"mock-host: {error}", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="mock-host", description="The files that an NVIDIA driver leaves on a machine, without the machine."
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    lay_command = commands.add_parser("lay", help="make the tree of a profile, or make it anew as a reboot does")
    lay_command.add_argument("--profile", required=True, choices=machine_names(), metavar="NAME", help=", ".join(machine_names()))
    lay_command.add_argument("--into", required=True, type=Path, metavar="DIR")
    lay_command.add_argument("--driver-version", metavar="VERSION", help="another driver than the profile's, such as 580.142")
    lay_command.add_argument("--seed", default="", help="gives the GPUs other UUIDs; say, the node's name")
    lay_command.add_argument("--hook", action="store_true", help="with nvidia-cdi-hook, as a host with NVIDIA's container toolkit")
    lay_command.set_defaults(run=_lay)
    for name, run, what in (
        ("apply", _apply, f"put the tree in place in this private mount namespace, its driver root at {DRIVER_ROOT}"),
        ("sync", _sync, "make the device nodes follow the partitions that exist now"),
        ("status", _status, "say what a tree is and whether it is in place here"),
    ):
        command = commands.add_parser(name, help=what)
        command.add_argument("--from", required=True, type=Path, metavar="DIR", dest="directory")
        command.set_defaults(run=run)
    return parser


def _lay(options: argparse.Namespace) -> None:
    built = build(say=say_on_stderr)
    hook = cdi_hook_program(cache_folder(), say=say_on_stderr) if options.hook else None
    programs = DriverPrograms(nvml_library=built.library, nvidia_smi=built.nvidia_smi, cdi_hook=hook)
    machine = load_machine(options.profile, seed=options.seed)
    _print_status(lay(machine, options.into.absolute(), programs=programs, driver_version=options.driver_version))


def _apply(options: argparse.Namespace) -> None:
    _tree(options).apply()


def _sync(options: argparse.Namespace) -> None:
    _tree(options).sync()


def _status(options: argparse.Namespace) -> None:
    _print_status(_tree(options))


def _tree(options: argparse.Namespace) -> HostTree:
    return HostTree.open(options.directory.absolute())


def _print_status(tree: HostTree) -> None:
    nodes = sorted(path.name for path in tree.dev.glob("nvidia*") if not path.is_dir())
    facts = {
        "profile": tree.machine,
        "driver": tree.driver_version,
        "gpus": ", ".join(sorted(path.name for path in (tree.nvidia_proc / "gpus").iterdir())) or "none",
        "nodes": ", ".join(nodes) or "none",
        "partition capabilities": ", ".join(map(str, sorted(tree.partition_capabilities()))) or "none",
        "in place here": "yes" if tree.is_applied() else "no",
    }
    for name, value in facts.items():
        print(f"{name:24}{value}")
