"""Flags that can also be set by an environment variable, and say so in their help."""

from __future__ import annotations

import argparse
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gpu_dra.core.errors import Refused

if TYPE_CHECKING:
    from collections.abc import Callable

OBJECT_NAME: Final = re.compile(r"(?=.{1,253}\Z)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
"""DNS subdomain (RFC 1123), which names of nodes are and UIDs of pods keep to."""


class _FromEnvironment(str):
    """A value that was not typed on the command line. argparse converts it only when the flag's own subcommand runs."""

    variable: str

    def __new__(cls, value: str, variable: str) -> _FromEnvironment:
        made = super().__new__(cls, value)
        made.variable = variable
        return made


def add_flag(
    parser: argparse.ArgumentParser,
    flag: str,
    *,
    env: str,
    default: str,
    help: str,  # noqa: A002 - argparse's own name
    type: Callable[[str], Any] = str,  # noqa: A002 - argparse's own name
    choices: tuple[str, ...] | None = None,
) -> None:
    """Add `flag`; the command line wins over the environment, the environment over `default`. A bad value of either names its origin."""

    def convert(text: str) -> Any:  # noqa: ANN401 - whatever `type` makes
        try:
            value = type(str(text))
            if choices is not None and value not in choices:
                raise ValueError(f"choose from {', '.join(choices)}")
        except (ValueError, argparse.ArgumentTypeError) as error:
            if isinstance(text, _FromEnvironment):
                raise argparse.ArgumentTypeError(f"environment variable {text.variable}: {str(text)!r}: {error}") from error
            raise argparse.ArgumentTypeError(str(error)) from error
        return value

    value = os.environ.get(env)
    metavar = "VALUE" if choices is None else "{" + ",".join(choices) + "}"
    parser.add_argument(
        flag, type=convert, default=default if value is None else _FromEnvironment(value, env), metavar=metavar,
        help=f"{help} [{env}{f', default {default}' if default else ''}]",
    )  # fmt: skip


def add_node_name(parser: argparse.ArgumentParser) -> None:
    """Add `--node-name`; `node_name` checks it."""
    add_flag(parser, "--node-name", env="NODE_NAME", default="", help="name of this node in the cluster")


def node_name(options: argparse.Namespace) -> str:
    """The node's name. Raises Refused when there is none or it is none."""
    if not options.node_name:
        raise Refused("no node name; set --node-name, or NODE_NAME from the pod's spec.nodeName")
    return object_name("--node-name", options.node_name)


def object_name(flag: str, value: str) -> str:
    """`value`, if Kubernetes would give such a name. Raises Refused."""
    if not OBJECT_NAME.fullmatch(value):
        raise Refused(f"{flag}: {value!r} is no name Kubernetes gives (lower case letters, digits, '-' and '.', at most 253)")
    return value


def add_kubeconfig(parser: argparse.ArgumentParser) -> None:
    """Add `--kubeconfig`."""
    add_flag(parser, "--kubeconfig", env="KUBECONFIG", default="", help="kubeconfig file; empty uses the pod's service account")


def absolute(text: str) -> Path:
    """A flag's type: an absolute path."""
    path = Path(text)
    if not path.is_absolute():
        raise argparse.ArgumentTypeError(f"{text!r} is not an absolute path")
    return path
