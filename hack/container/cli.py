"""The command line of `hack/image`: the archive's path on standard output, progress and errors on standard error."""

from __future__ import annotations

import argparse
import os
import re
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from hack.container import base, build, engines
from hack.testbed.cluster.errors import LabError, say_on_stderr


def main(arguments: Sequence[str] | None = None) -> int:
    """Build once; 0, or 1 with an error on standard error."""
    options = _parser().parse_args(arguments)
    try:
        image = build.image(tag=options.tag, base_image=options.base, engine=options.engine, say=say_on_stderr)
        archive = image.archive
        if options.output:
            options.output.parent.mkdir(parents=True, exist_ok=True)
            archive = Path(shutil.copyfile(archive, options.output))
    except (LabError, OSError) as error:
        print(f"hack/image: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    say_on_stderr(f"{image.reference}, {archive.stat().st_size / 2**20:.0f} MiB unpacked")
    print(archive)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="hack/image",
        description="Build the container image into an archive, and print the archive's path.",
        epilog="Built images and a base made here are kept in $GPU_DRA_CACHE (default ~/.cache/gpu-dra).",
    )
    parser.add_argument("--output", type=Path, metavar="FILE.tar", help="copy the archive there (default: leave it in the cache)")
    parser.add_argument("--tag", type=_tag, help=f"of {build.REPOSITORY} (default: the product's version)")
    parser.add_argument(
        "--base",
        metavar="IMAGE",
        default=os.environ.get("BASE_IMAGE") or None,
        help=f"to start from (default: $BASE_IMAGE, else {base.PUBLIC}, or the same made here where no registry answers)",
    )
    parser.add_argument("--engine", choices=engines.NAMES, help="default: the first of these that works")
    return parser


def _tag(text: str) -> str:
    """Source: OCI distribution, the grammar of a tag."""
    if not re.fullmatch(r"[a-zA-Z0-9_][a-zA-Z0-9._-]{0,127}", text):
        raise argparse.ArgumentTypeError(f"{text!r} is no image tag: letters, digits and . _ -, as in v1.2")
    return text
