"""Flags that can also be set by an environment variable, and say so in their help."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


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
    value = os.environ.get(env)
    origin = f"environment variable {env}" if value is not None else f"default of {flag}"
    text = default if value is None else value
    try:
        parsed = type(text)
        if choices is not None and parsed not in choices:
            raise ValueError(f"choose from {', '.join(choices)}")
    except (ValueError, argparse.ArgumentTypeError) as error:
        parser.error(f"{origin}: {text!r}: {error}")
    parser.add_argument(
        flag, type=type, choices=choices, default=parsed, metavar="VALUE" if choices is None else None,
        help=f"{help} [{env}{f', default {default}' if default else ''}]",
    )  # fmt: skip
