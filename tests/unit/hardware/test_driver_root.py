"""Libraries are found wherever a distribution puts them, inside the driver root and nowhere else."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from gpu_dra.hardware.driver_root import DriverRootNotFound, find_library, library_directories, resolve_in_root
from hack.testbed.elf_stub import AARCH64, X86_64, architecture, shared_object

OURS = architecture(os.uname().machine)
FOREIGN = AARCH64 if OURS is X86_64 else X86_64
NAME = "libnvidia-ml.so.1"


@pytest.fixture
def root(tmp_path):
    path = tmp_path / "driver"
    path.mkdir()
    return path


@pytest.fixture
def install(root):
    """Put a library below the root as a package does: the file by version, the SONAME as a link."""

    def put(directory, *, arch=OURS, version="580.142"):
        path = root / directory / f"libnvidia-ml.so.{version}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(shared_object(NAME, arch))
        (path.parent / NAME).symlink_to(path.name)
        return path

    return put


@pytest.mark.parametrize(
    "directory", ["usr/lib64", f"usr/lib/{OURS.triplet}", "lib64", "usr/lib", f"usr/lib/{OURS.triplet}/nvidia/current"]
)
def test_a_library_is_found_where_distributions_put_it(root, install, directory):
    path = install(directory)
    assert find_library(root, NAME) == path


def test_a_library_in_an_unusual_place_is_found_through_the_loader_cache(root, install):
    path = install("opt/nvidia/lib")
    (root / "etc").mkdir()
    (root / "etc/ld.so.conf").write_text("/opt/nvidia/lib\n")
    subprocess.run(["/sbin/ldconfig", "-r", root], check=True)
    assert find_library(root, NAME) == path


def test_a_damaged_loader_cache_costs_only_what_it_alone_knew(root, install):
    path = install("usr/lib64")
    (root / "etc").mkdir()
    (root / "etc/ld.so.cache").write_bytes(b"glibc-ld.so.cache1.1\xff")
    assert find_library(root, NAME) == path


def test_an_absolute_link_begins_at_the_root(root, install):
    """In a driver container `/usr/lib64` may be a link to `/opt/lib`, which is another place on the host."""
    path = install("opt/lib")
    (root / "usr").mkdir()
    (root / "usr/lib64").symlink_to("/opt/lib")
    assert find_library(root, NAME) == path


def test_a_link_cannot_leave_the_root(root, tmp_path):
    (tmp_path / "secret").write_text("")
    (root / "way-out").symlink_to("../../secret")
    assert resolve_in_root(root, "way-out") is None


def test_links_in_circles_lead_nowhere(root):
    (root / "a").symlink_to("b")
    (root / "b").symlink_to("a")
    assert resolve_in_root(root, "a/lib") is None


def test_a_directory_of_the_librarys_name_is_passed_over(root, install):
    """Seen in the field: a volume mounted at the library's path makes the runtime create a directory there."""
    (root / "usr/lib64" / NAME).mkdir(parents=True)
    path = install("usr/lib")
    assert find_library(root, NAME) == path


def test_a_library_for_another_architecture_is_passed_over(root, install):
    install("usr/lib64", arch=FOREIGN)
    path = install("usr/lib")
    assert find_library(root, NAME) == path


def test_what_was_looked_at_and_passed_over_is_told(root, install):
    install("usr/lib64", arch=FOREIGN)
    (root / "usr/lib" / NAME).mkdir(parents=True)
    (root / "lib64").mkdir()
    (root / "lib64" / NAME).symlink_to("gone")
    with pytest.raises(DriverRootNotFound) as raised:
        find_library(root, NAME)
    message = str(raised.value)
    for part in (f"{root}/lib64", "another architecture", "not a file", "its link leads nowhere", "--nvidia-driver-root"):
        assert part in message


def test_a_root_that_does_not_exist_is_told_as_such(tmp_path):
    with pytest.raises(DriverRootNotFound, match="does not exist"):
        find_library(tmp_path / "nowhere", NAME)


def test_directories_are_named_once_and_by_their_real_path(root):
    """On a merged-usr system `/lib64` and `/usr/lib64` are one directory."""
    (root / "usr/lib64").mkdir(parents=True)
    (root / "lib64").symlink_to("usr/lib64")
    assert library_directories(root) == (root / "usr/lib64", root)


def test_what_was_tried_is_told_in_paths_of_the_host(tmp_path):
    """In a pod the driver root is a mount under another name, which a person on the host does not know."""
    (tmp_path / "usr/lib64").mkdir(parents=True)
    with pytest.raises(DriverRootNotFound, match=r"below the driver root /opt/driver .looked in /opt/driver/usr/lib64") as told:
        find_library(tmp_path, "libcuda.so.1", on_host=Path("/opt/driver"))
    assert str(tmp_path) not in str(told.value)
    with pytest.raises(DriverRootNotFound, match="the driver root /opt/nowhere does not exist"):
        find_library(tmp_path / "none", "libcuda.so.1", on_host=Path("/opt/nowhere"))
