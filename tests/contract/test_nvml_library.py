"""The adapter takes the library that lies below the driver root now, and lets go of it so that the driver can be exchanged."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from gpu_dra.core.errors import NotReady
from gpu_dra.hardware.nvml_errors import LibraryNotFound, Uninitialized, VersionMismatch
from gpu_dra.hardware.pynvml_adapter import PynvmlAdapter
from hack.testbed import mock_nvml
from hack.testbed.mock_nvml import MockNvml
from hack.testbed.profiles import load_machine


@pytest.fixture
def built():
    return mock_nvml.build()


@pytest.fixture
def machine(tmp_path, monkeypatch, built):
    state = tmp_path / "state"
    monkeypatch.setenv("MOCK_NVML_STATE", str(state))
    return MockNvml.create(state, load_machine("h100x8"), built, host_tree=tmp_path / "proc")


@pytest.fixture
def package(tmp_path, built, machine):
    """Install the driver library of a version; each is a file of its own."""

    def install(version):
        path = tmp_path / f"libnvidia-ml.so.{version}"
        shutil.copy(built.library, path)
        return path

    return install


class Shelf:
    """Where the library is now; nowhere while `path` is None."""

    def __init__(self, path):
        self.path = path

    def find(self):
        if self.path is None:
            raise NotReady("libnvidia-ml.so.1 is nowhere")
        return self.path


@pytest.fixture
def shelf(package):
    return Shelf(package("580.105.08"))


@pytest.fixture
def nvml(shelf):
    adapter = PynvmlAdapter(shelf.find)
    yield adapter
    adapter.close()


def is_mapped(path):
    return str(path) in Path("/proc/self/maps").read_text()


def test_a_closed_adapter_holds_no_library(nvml, shelf):
    """A mapped file keeps the mount of a driver container busy."""
    nvml.open()
    assert is_mapped(shelf.path)
    nvml.close()
    assert not is_mapped(shelf.path)
    with pytest.raises(Uninitialized):
        nvml.gpu_count()


def test_the_next_session_uses_the_library_of_the_new_driver(nvml, shelf, package, machine):
    """Both files have the same SONAME, by which the loader would take the old one for the new."""
    nvml.open()
    old, shelf.path = shelf.path, package("590.10")
    machine.driver_version("590.10")
    assert nvml.is_superseded()
    nvml.open()
    assert is_mapped(shelf.path)
    assert not is_mapped(old)
    assert nvml.driver_version() == "590.10"
    assert not nvml.is_superseded()


def test_a_library_that_went_away_supersedes_the_session(nvml, shelf):
    nvml.open()
    shelf.path = None
    assert nvml.is_superseded()


def test_a_library_that_is_nowhere_is_an_error_with_the_finders_words(nvml, shelf):
    shelf.path = None
    with pytest.raises(LibraryNotFound, match=r"libnvidia-ml\.so\.1 is nowhere"):
        nvml.open()


def test_a_file_that_cannot_be_loaded_is_named(nvml, shelf):
    shelf.path.write_bytes(b"\x7fELF and nothing more")
    with pytest.raises(LibraryNotFound, match="cannot be loaded"):
        nvml.open()


def test_a_failed_open_leaves_nothing_behind_and_can_be_tried_again(nvml, shelf, machine):
    machine.kernel_version("590.10")
    with pytest.raises(VersionMismatch):
        nvml.open()
    assert not is_mapped(shelf.path)
    machine.kernel_version("580.105.08")
    nvml.open()
    assert nvml.gpu_count() == 8
