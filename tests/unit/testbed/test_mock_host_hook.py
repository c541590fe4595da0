"""The stand-in for nvidia-cdi-hook does in a container's root what CDI files rely on, and never outside it."""

from __future__ import annotations

import json
import platform
import subprocess
from typing import TYPE_CHECKING

import pytest

from hack.testbed.elf_stub import architecture, shared_object
from hack.testbed.mock_host import cdi_hook_program

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="session")
def hook(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return cdi_hook_program(tmp_path_factory.mktemp("cache"), say=print)


class Container:
    """A bundle as runc hands it to a createContainer hook."""

    def __init__(self, bundle: Path, hook: Path) -> None:
        self.bundle, self.hook, self.root = bundle, hook, bundle / "rootfs"
        (self.root / "etc/ld.so.conf.d").mkdir(parents=True)
        decoys = {"process": {"root": {"path": "/wrong"}, "args": ['a "quoted" [word']}, "mounts": [{"path": "/wrong"}]}
        (bundle / "config.json").write_text(json.dumps({**decoys, "root": {"readonly": False, "path": "rootfs"}}))

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        state = {"ociVersion": "1.2.1", "id": "c0ffee", "status": "creating", "pid": 1, "bundle": str(self.bundle)}
        return subprocess.run(
            [self.hook, *arguments], input=json.dumps(state), capture_output=True, text=True, check=False, timeout=10
        )


@pytest.fixture
def container(tmp_path: Path, hook: Path) -> Container:
    return Container(tmp_path, hook)


def test_a_symlink_is_made_with_the_directories_it_needs(container: Container) -> None:
    result = container.run("create-symlinks", "--link", "libcuda.so.1::/usr/lib/x86_64-linux-gnu/libcuda.so")

    assert result.returncode == 0, result.stderr
    assert str((container.root / "usr/lib/x86_64-linux-gnu/libcuda.so").readlink()) == "libcuda.so.1"


def test_every_link_option_counts_in_both_spellings(container: Container) -> None:
    container.run("create-symlinks", "--link", "a.so.1::/lib/a.so", "--link=../card0::/dev/dri/by-path/pci-0000:1b:00.0-card")

    assert (container.root / "lib/a.so").is_symlink()
    assert str((container.root / "dev/dri/by-path/pci-0000:1b:00.0-card").readlink()) == "../card0"


def test_a_link_that_is_there_already_is_replaced(container: Container) -> None:
    (container.root / "lib").mkdir()
    (container.root / "lib/libcuda.so").symlink_to("libcuda.so.old")

    container.run("create-symlinks", "--link", "libcuda.so.1::/lib/libcuda.so")

    assert str((container.root / "lib/libcuda.so").readlink()) == "libcuda.so.1"


@pytest.mark.parametrize("path", ["/../../escaped", "/trap/escaped"])
def test_an_image_cannot_lead_the_hook_out_of_its_root(container: Container, tmp_path: Path, path: str) -> None:
    (container.root / "trap").symlink_to(tmp_path)

    container.run("create-symlinks", "--link", f"target::{path}")

    assert not (tmp_path / "escaped").is_symlink()
    assert not (tmp_path.parent / "escaped").is_symlink()


def test_the_loader_cache_of_the_container_learns_the_injected_libraries(container: Container) -> None:
    folder = container.root / "usr/lib/nvidia"
    folder.mkdir(parents=True)
    (folder / "libcuda.so.580.105.08").write_bytes(shared_object("libcuda.so.1", architecture(platform.machine())))

    result = container.run("update-ldcache", "--folder", "/usr/lib/nvidia", "--folder", "/not/in/this/image")

    assert result.returncode == 0, result.stderr
    assert b"/usr/lib/nvidia/libcuda.so.1\0" in (container.root / "etc/ld.so.cache").read_bytes()
    assert (folder / "libcuda.so.1").is_symlink()


@pytest.mark.parametrize(("in_image", "preferred"), [("595.58.03", True), ("570.148.08", False)])
def test_a_newer_libcuda_of_the_image_is_preferred_to_the_hosts(container: Container, in_image: str, *, preferred: bool) -> None:
    compat = container.root / "usr/local/cuda/compat"
    compat.mkdir(parents=True)
    (compat / f"libcuda.so.{in_image}").touch()

    result = container.run("enable-cuda-compat", "--host-driver-version=580.105.08")

    assert result.returncode == 0, result.stderr
    assert [file.read_text() for file in (container.root / "etc/ld.so.conf.d").iterdir()] == [
        "/usr/local/cuda/compat\n"
    ] * preferred


def test_an_image_without_a_libcuda_of_its_own_is_left_as_it_is(container: Container) -> None:
    assert container.run("enable-cuda-compat", "--host-driver-version=580.105.08").returncode == 0
    assert list((container.root / "etc/ld.so.conf.d").iterdir()) == []


def test_device_node_protection_is_accepted(container: Container) -> None:
    assert container.run("disable-device-node-modification").returncode == 0


def test_an_unknown_command_fails_and_is_named(container: Container) -> None:
    result = container.run("create-everything")

    assert result.returncode == 1
    assert "unknown command create-everything" in result.stderr


def test_a_bundle_that_is_gone_fails_with_its_path(container: Container) -> None:
    (container.bundle / "config.json").unlink()

    result = container.run("create-symlinks", "--link", "a::/b")

    assert result.returncode == 1
    assert f"{container.bundle}/config.json: No such file or directory" in result.stderr
