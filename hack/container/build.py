"""Build the image, or find it where an earlier run with the same inputs left it.

built = image(say=say)            # Image(reference="ghcr.io/gpu-dra/gpu-dra:0.1.0", archive=Path("….tar"))
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hack.container import base, engines, fetch, inputs
from hack.testbed.cluster.cache import cache_folder, make_once
from hack.testbed.cluster.errors import LabError, Say
from hack.testbed.elf_stub import architecture

REPOSITORY = "ghcr.io/gpu-dra/gpu-dra"
"""Also the chart's default."""
KEPT = 4
"""Built images in the cache, each some 120 MB; older ones go."""
ARCHIVE = "gpu-dra.tar"


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """A built image: its full reference, and a `docker save` archive that carries it."""

    reference: str
    archive: Path


def image(*, tag: str | None = None, base_image: str | None = None, engine: str | None = None, say: Say) -> Image:
    """Build it for this machine's architecture. Without `base_image`, the public base or one made here. Raises LabError."""
    cache = cache_folder()
    arch = architecture(platform.machine()).oci
    reference = f"{REPOSITORY}:{tag or inputs.version()}"
    made_here = base_image is None and not base.registry_answers(base.PUBLIC)
    origin = f"{base.LOCAL}:{base.base_key(arch)}" if made_here else base_image or base.PUBLIC
    epoch = source_date_epoch(os.environ)
    facts = {"reference": reference, "base": origin, "arch": arch, "epoch": str(epoch)}

    def fill(folder: Path) -> None:
        with tempfile.TemporaryDirectory(prefix="gpu-dra-image-") as temporary:
            work = Path(temporary)
            chosen = engines.choose(engine, store=work / "store", works=engines.works_here, say=say)
            context = work / "context"
            inputs.lay_out(inputs.PROJECT, context)
            if made_here:
                _bring_base(chosen, base.make_base(cache, arch=arch, say=say), origin, work / "base", epoch)
                _fetch(context, arch)
            say(f"building {reference} for {arch} with {chosen.name} on {origin}")
            arguments = {"BASE_IMAGE": origin, "VERSION": reference.rpartition(":")[2]}
            _run(chosen.build(context, reference=reference, arguments=arguments, epoch=epoch))
            _run(chosen.save(reference, folder / ARCHIVE))

    entry = make_once(cache / f"image-{inputs.key(inputs.PROJECT, facts)}", fill, say=say)
    os.utime(entry)
    forget_old(cache)
    return Image(reference=reference, archive=entry / ARCHIVE)


def source_date_epoch(environment: Mapping[str, str]) -> int:
    """Seconds since 1970 for every time stamp. Source: reproducible-builds.org. Raises LabError."""
    text = environment.get("SOURCE_DATE_EPOCH") or "0"
    if not (text.isascii() and text.isdigit()):
        raise LabError(f"SOURCE_DATE_EPOCH is {text!r}; it takes seconds since 1970, as `git log -1 --format=%ct` prints them")
    return int(text)


def forget_old(cache: Path) -> None:
    """Leave the KEPT images that were used last."""
    built = [path for path in cache.glob("image-*") if (path / ARCHIVE).exists()]
    for path in sorted(built, key=lambda path: path.stat().st_mtime, reverse=True)[KEPT:]:
        shutil.rmtree(path, ignore_errors=True)


def _bring_base(engine: engines.Engine, tar: Path, reference: str, context: Path, epoch: int) -> None:
    """Every engine can make an image of a tar file by a Dockerfile; import commands differ."""
    context.mkdir()
    try:
        os.link(tar, context / tar.name)
    except OSError:
        shutil.copyfile(tar, context / tar.name)
    (context / "Dockerfile").write_text(f"FROM scratch\nADD {tar.name} /\n")
    _run(engine.build(context, reference=reference, arguments={}, epoch=epoch))


def _fetch(context: Path, arch: str) -> None:
    """Get the distributions here: where no registry is reached, a build may not reach PyPI as this machine does."""
    own = cache_folder() / "uv" / "bin" / "uv"
    uv = shutil.which("uv") or (str(own) if own.exists() else None)
    if uv is None:
        raise LabError("uv is neither on PATH nor where hack/venv puts it; run `make venv` first")
    try:
        fetch.fetch(uv=uv, project=context, output=context / "site" / arch, arch=arch, python=base.PYTHON)
    except subprocess.CalledProcessError as error:
        raise LabError(f"the locked distributions cannot be fetched: `{' '.join(error.cmd[:3])}` failed; see above") from error


def _run(command: list[str]) -> None:
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if result.returncode != 0:
        tail = "\n".join(result.stdout.splitlines()[-30:])
        raise LabError(f"`{' '.join(command[:1])}` failed with status {result.returncode}; the end of what it said:\n{tail}")
