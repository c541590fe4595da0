"""What the image is made from, in one folder, and the key that says whether it is already built."""

from __future__ import annotations

import hashlib
import json
import shutil
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
FILES = ("Dockerfile", "pyproject.toml", "uv.lock", "README.md")
FOLDERS = ("src", "hack/container")


def version(project: Path = PROJECT) -> str:
    """The product's version, which is the image's tag."""
    return str(tomllib.loads((project / "pyproject.toml").read_text())["project"]["version"])


def input_files(project: Path) -> Iterator[Path]:
    """Paths relative to the project, in order; nothing that Python or an editor leaves."""
    found = [project / name for name in FILES]
    for folder in FOLDERS:
        found += [path for path in (project / folder).rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    yield from sorted(path.relative_to(project) for path in found if not path.name.endswith(("~", ".pyc", ".swp")))


def key(project: Path, facts: Mapping[str, str]) -> str:
    """A digest of every input file and of `facts`: base, reference, engine and the like."""
    digest = hashlib.sha256(json.dumps(dict(facts), sort_keys=True).encode())
    for path in input_files(project):
        content = (project / path).read_bytes()
        digest.update(f"{path}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()[:16]


def lay_out(project: Path, context: Path) -> None:
    """Copy the inputs to a build context, with modes that do not depend on the checkout's."""
    for path in input_files(project):
        target = context / path
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(project / path, target)
        target.chmod(0o644)
