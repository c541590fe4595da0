"""The one entry point `gpu-dra`: finds the subcommand and turns our errors into one line and an exit status."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from gpu_dra import __version__
from gpu_dra.cli import agent, detect, node, uninstall
from gpu_dra.core.errors import GpuDraError

if TYPE_CHECKING:
    from collections.abc import Sequence

COMMANDS = (node, agent, detect, uninstall)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a subcommand. 0: it ended as asked; 1: it could not, one line says why; 2: the command line was wrong."""
    parser = argparse.ArgumentParser(prog="gpu-dra", description="DRA driver and lifecycle manager for NVIDIA GPUs.")
    parser.add_argument("--version", action="version", version=f"gpu-dra {__version__}")
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for command in COMMANDS:
        command.register(subparsers)
    options = parser.parse_args(arguments)
    try:
        return int(options.run(options))
    except GpuDraError as error:
        print(f"gpu-dra {options.command}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
