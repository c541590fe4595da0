"""The driver root is scanned again when, and only when, it may hold something else."""

import pytest

from gpu_dra.cdi.driver_cache import DriverFilesCache
from gpu_dra.core.errors import NotReady
from tests.unit.cdi.host_tree import UBUNTU, VERSION, HostTree


def programs(files):
    return {file.container_path for file in files.others}


def test_an_unchanged_driver_is_scanned_once(tree):
    cache = DriverFilesCache(tree.age().host())
    assert cache.get(VERSION) is cache.get(VERSION)


def test_a_file_that_is_added_is_noticed(tree):
    cache = DriverFilesCache(tree.age().host())
    cache.get(VERSION)
    tree.write("usr/bin/nvidia-debugdump")
    assert "/usr/bin/nvidia-debugdump" in programs(cache.get(VERSION))


def test_a_directory_that_did_not_exist_is_noticed(tree):
    cache = DriverFilesCache(tree.age().host())
    cache.get(VERSION)
    tree.write("etc/vulkan/implicit_layer.d/nvidia_layers.json")
    assert "/etc/vulkan/implicit_layer.d/nvidia_layers.json" in programs(cache.get(VERSION))


def test_a_driver_container_that_is_replaced_is_noticed(tmp_path):
    """The same mount point holds another tree, of the same version, with the same old timestamps."""
    old, new = HostTree(tmp_path / "a").install_driver().age(), HostTree(tmp_path / "b").install_driver()
    new.write("usr/bin/nvidia-debugdump")
    cache = DriverFilesCache(old.host())
    cache.get(VERSION)
    old.root.rename(tmp_path / "gone")
    new.age().root.rename(old.root)
    assert "/usr/bin/nvidia-debugdump" in programs(cache.get(VERSION))


def test_another_version_is_another_question(tree):
    cache = DriverFilesCache(tree.age().host())
    cache.get(VERSION)
    tree.install_driver(version="590.44.01")
    files = cache.get("590.44.01")
    assert f"/{UBUNTU}/libcuda.so.590.44.01" in {file.container_path for file in files.libraries}


def test_nothing_found_is_never_remembered(tmp_path):
    """A node that has just booted: the driver container fills its root a minute later, and no restart may be needed."""
    tree = HostTree(tmp_path).age()
    cache = DriverFilesCache(tree.host())
    with pytest.raises(NotReady):
        cache.get(VERSION)
    tree.install_driver()
    assert cache.get(VERSION).version == VERSION


def test_a_driver_that_goes_away_and_comes_back_is_found_again(tree):
    cache = DriverFilesCache(tree.age().host())
    before = cache.get(VERSION)
    tree.uninstall_driver()
    with pytest.raises(NotReady):
        cache.get(VERSION)
    tree.install_driver()
    assert cache.get(VERSION).libraries == before.libraries


def test_a_directory_that_changed_just_now_is_looked_at_again(tree):
    """Within one tick of the kernel's clock a second change leaves the mtime as it is."""
    cache = DriverFilesCache(tree.host())
    assert cache.get(VERSION) is not cache.get(VERSION)


def test_forgetting_scans_again(tree):
    cache = DriverFilesCache(tree.age().host())
    before = cache.get(VERSION)
    cache.forget()
    assert cache.get(VERSION) is not before
