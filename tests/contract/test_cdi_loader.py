"""The dynamic loader finds the driver in a container that was laid out as the CDI file says."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpu_dra.cdi.builder import CdiBuilder, ClaimDevice
from tests.unit.cdi.host_tree import UBUNTU, VERSION, HostTree, gpu

DLOPEN = "import ctypes, sys; [ctypes.CDLL(name) for name in sys.argv[1:]]"
NAMES = ("libcuda.so.1", "libcuda.so", f"libcuda.so.{VERSION}", "libnvidia-ml.so.1", "libnvidia-nvvm.so.4", "libGLX_indirect.so.0")


class Container:
    """The part of a container's file tree that mounts and links make, in a folder."""

    def __init__(self, root: Path, tree: HostTree) -> None:
        self.root = root
        device = ClaimDevice(name="gpu-0", gpu=gpu())
        self.edits = CdiBuilder(tree.host()).build("uid", (device,), driver_version=VERSION).spec.edits
        for mount in self.edits.mounts:
            place = self.path(mount.container_path)
            place.write_bytes((tree.root / mount.host_path.lstrip("/")).read_bytes())

    def path(self, container_path: str) -> Path:
        path = self.root / container_path.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def create_symlinks(self) -> None:
        """What the hook of that name does."""
        arguments = next(hook.args for hook in self.edits.hooks if hook.args[1] == "create-symlinks")
        for link in arguments[3::2]:
            target, _, place = link.partition("::")
            self.path(place).symlink_to(target)

    def load(self, library_path: str) -> None:
        """Load every name in a process of its own. Raises CalledProcessError when one is not found."""
        directories = ":".join(str(self.path(directory)) for directory in library_path.split(":"))
        environment = os.environ | {"LD_LIBRARY_PATH": directories}
        subprocess.run([sys.executable, "-c", DLOPEN, *NAMES], env=environment, check=True, capture_output=True)


@pytest.fixture
def tree(tmp_path: Path) -> HostTree:
    return HostTree(tmp_path / "host").install_driver()


def test_without_hooks_the_environment_alone_is_enough(tree, tmp_path):
    """Nothing runs in the container before its program: mounts and LD_LIBRARY_PATH must do."""
    container = Container(tmp_path / "container", tree)
    variables = dict(entry.split("=", 1) for entry in container.edits.env)
    container.load(variables["LD_LIBRARY_PATH"])


def test_with_hooks_the_links_lead_every_name_to_a_library(tree, tmp_path):
    container = Container(tmp_path / "container", tree.install_hook())
    container.create_symlinks()
    container.load(f"/{UBUNTU}")
    assert container.path(f"/{UBUNTU}/gbm/nvidia-drm_gbm.so").is_file()


def test_the_check_notices_a_library_that_is_not_there(tree, tmp_path):
    container = Container(tmp_path / "container", tree)
    with pytest.raises(subprocess.CalledProcessError):
        container.load("/empty")
