"""The container image: small, precompiled, described, and able to start as an ordinary user. Needs root, for chroot."""

from __future__ import annotations

import io
import json
import os
import platform
import re
import subprocess
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from hack.container import build, inputs
from hack.container.base import PYTHON
from hack.testbed.cluster.cache import cache_folder
from hack.testbed.elf_stub import architecture

LIBRARY = f"opt/gpu-dra/lib/python{PYTHON}/site-packages"
BYTECODE = f".cpython-{PYTHON.replace('.', '')}.opt-2.pyc"
UNWANTED = re.compile(r"bin/(pip[\d.]*|gcc.*|cc|g\+\+.*|ld|as|make|apt.*|dpkg.*|perl.*|uv)$|/(pip|ensurepip|setuptools)(/|$)")
KUBECONFIG = {
    "current-context": "a",
    "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
    "clusters": [{"name": "a", "cluster": {"server": "https://127.0.0.1:9"}}],
    "users": [{"name": "a", "user": {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "aws"}}}],
}
IMPORT_ALL = """
import importlib, pkgutil, gpu_dra
for module in pkgutil.walk_packages(gpu_dra.__path__, "gpu_dra."):
    if module.name not in ("gpu_dra.kube.kubeconfig_official", "gpu_dra.__main__"):
        importlib.import_module(module.name)
print("all")
"""


@dataclass(frozen=True)
class Unpacked:
    """An image's configuration, its files with their modes, and where they lie."""

    config: dict[str, Any]
    members: dict[str, tarfile.TarInfo]
    root: Path

    def run(self, *command: str, user: str = "65532:65532") -> subprocess.CompletedProcess[str]:
        """As the image's user with the image's environment."""
        return subprocess.run(
            ["chroot", f"--userspec={user}", self.root, *command],
            env=dict(pair.split("=", 1) for pair in self.config["config"]["Env"]),
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )


@pytest.fixture(scope="session")
def built():
    return build.image(say=print)


@pytest.fixture(scope="session")
def image(built, tmp_path_factory):
    root = tmp_path_factory.mktemp("image")
    with tarfile.open(built.archive) as archive:
        (manifest,) = json.load(archive.extractfile("manifest.json"))
        config = json.load(archive.extractfile(manifest["Config"]))
        (layer,) = manifest["Layers"]
        with tarfile.open(fileobj=io.BytesIO(archive.extractfile(layer).read())) as files:
            members = {member.name.removeprefix("./").rstrip("/"): member for member in files}
            files.extractall(root, filter="fully_trusted")
    root.chmod(0o755)
    return Unpacked(config=config, members=members, root=root)


def test_an_import_finds_the_reference_that_the_chart_names(built):
    with tarfile.open(built.archive) as archive:
        (manifest,) = json.load(archive.extractfile("manifest.json"))
    assert manifest["RepoTags"] == [f"ghcr.io/gpu-dra/gpu-dra:{inputs.version()}"] == [built.reference]


def test_every_module_has_bytecode_of_the_level_it_runs_at_and_of_no_other(image):
    """Without bytecode a start costs two CPU seconds, and a read-only root can never gain it."""
    sources = {name for name in image.members if name.endswith(".py")}
    expected = {f"{(path := Path(name)).parent}/__pycache__/{path.stem}{BYTECODE}" for name in sources}
    assert any(name.startswith(f"{LIBRARY}/gpu_dra/") for name in sources)
    assert any(name.startswith(f"usr/lib/python{PYTHON}/asyncio/") for name in sources)
    assert {name for name in image.members if name.endswith(".pyc")} == expected


def test_bytecode_is_never_checked_against_its_source(image):
    """PEP 552: flags 1 is a hash that is not checked; image tools set time stamps as they like."""
    flags = {int.from_bytes((image.root / name).read_bytes()[4:8], "little") for name in image.members if name.endswith(BYTECODE)}
    assert flags == {1}


def test_native_modules_are_of_the_python_and_the_architecture_in_the_image(image):
    triplet = architecture(platform.machine()).triplet
    native = [name for name in image.members if name.startswith(LIBRARY) and name.endswith(".so")]
    assert native
    for name in native:
        assert re.search(rf"\.(cpython-{PYTHON.replace('.', '')}-{triplet}|abi3)\.so$", name), name


def test_nothing_in_it_installs_or_compiles(image):
    assert [name for name in image.members if UNWANTED.search(name)] == []


def test_nobody_gains_rights_by_a_file_in_it(image):
    assert [name for name, member in image.members.items() if member.isfile() and member.mode & 0o6000] == []


def test_it_holds_nothing_of_the_machine_that_built_it(image):
    for name in ("etc/hostname", "etc/resolv.conf"):
        assert not (image.root / name).exists() or (image.root / name).read_bytes() == b""
    assert not list(image.root.glob(f"{LIBRARY}/*.dist-info/direct_url.json"))


def test_it_says_what_it_is(image):
    config = image.config["config"]
    labels = {key.removeprefix("org.opencontainers.image."): value for key, value in config["Labels"].items()}
    assert (labels["title"], labels["version"], labels["licenses"]) == ("gpu-dra", inputs.version(), "Apache-2.0")
    assert labels["base.name"]
    assert labels["description"]
    assert config["User"] == "65532:65532"
    assert config["Entrypoint"] == ["/opt/gpu-dra/bin/gpu-dra"]
    assert {"PYTHONDONTWRITEBYTECODE=1", "PYTHONUNBUFFERED=1", "GRPC_ENABLE_FORK_SUPPORT=0"} <= set(config["Env"])


def test_its_bill_of_materials_lists_every_distribution_and_package(image):
    bill = json.loads((image.root / "usr/share/gpu-dra/sbom.json").read_text())
    listed = {part["purl"].split("?")[0] for part in (*bill["components"], bill["metadata"]["component"])}
    installed = {
        f"pkg:pypi/{name.lower().replace('_', '-')}@{version}"
        for name, version in (
            path.name.removesuffix(".dist-info").split("-", 1) for path in image.root.glob(f"{LIBRARY}/*.dist-info")
        )
    }
    assert len(installed) > 10
    assert installed <= listed
    packages = re.findall(r"^Package: (.+)$", (image.root / "var/lib/dpkg/status").read_text(), re.MULTILINE)
    assert {f"pkg:deb/debian/{quote(name)}" for name in packages} <= {purl.split("@")[0] for purl in listed}


def test_it_tells_its_version(image):
    done = image.run("gpu-dra", "--version")
    assert done.stdout == f"gpu-dra {inputs.version()}\n", done.stderr


def test_a_start_writes_nothing_even_where_it_could(image):
    """Root may write here, and the root file system is not read-only."""

    def files():
        return {path: path.lstat().st_mtime_ns for path in image.root.rglob("*")}

    before = files()
    done = image.run("gpu-dra", "node", "--help", user="0:0")
    assert done.returncode == 0, done.stderr
    assert files() == before


def test_every_module_of_the_product_finds_what_it_imports(image):
    """Distributions are left out and stripped; nothing that the product uses may go with them."""
    done = image.run("/opt/gpu-dra/bin/python3", "-OOPs", "-W", "error", "-c", IMPORT_ALL)
    assert done.stdout == "all\n", done.stderr


def test_a_kubeconfig_that_needs_the_client_that_is_left_out_is_refused_in_one_line(image):
    (image.root / "tmp/kubeconfig").write_text(json.dumps(KUBECONFIG))
    directories = (
        "--kubelet-plugins-directory-path",
        "/tmp/p",
        "--kubelet-registrar-directory-path",
        "/tmp/r",
        "--cdi-root",
        "/tmp/c",
    )
    done = image.run("gpu-dra", "node", "--node-name", "a", "--kubeconfig", "/tmp/kubeconfig", *directories)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert "which the container image leaves out" in line


def test_unchanged_inputs_are_not_built_again(built):
    assert build.image(say=pytest.fail) == built


def test_the_same_inputs_give_the_same_bytes(built, tmp_path, monkeypatch):
    """Built anew, in a cache that has the base and the tools and no image."""
    cache = cache_folder()
    for kept in (*cache.glob("image-base-*"), cache / "uv"):
        (tmp_path / kept.name).symlink_to(kept)
    monkeypatch.setenv("GPU_DRA_CACHE", os.fspath(tmp_path))
    again = build.image(say=print)
    assert again.archive != built.archive
    assert again.archive.read_bytes() == built.archive.read_bytes()
