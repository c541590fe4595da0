"""A library is known by its architecture and SONAME; a damaged one is named, never guessed at."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gpu_dra.hardware import elf
from gpu_dra.hardware.driver_root import find_library
from hack.testbed.elf_stub import AARCH64, X86_64, program, shared_object


@pytest.fixture
def file(tmp_path):
    def write(content):
        path = tmp_path / "libx.so"
        path.write_bytes(content)
        return path

    return write


@pytest.mark.parametrize("arch", [X86_64, AARCH64], ids=lambda arch: arch.machine)
def test_a_library_tells_its_architecture_and_soname(file, arch):
    found = elf.read(file(shared_object("libcuda.so.1", arch)))
    assert found == elf.ElfFile(machine=arch.elf_machine, soname="libcuda.so.1")


def test_a_library_made_by_a_real_linker_is_read():
    """Its string table may lie at another address than its place in the file."""
    assert elf.read(find_library(Path("/"), "libc.so.6")).soname == "libc.so.6"


def test_the_libraries_of_this_process_are_of_its_own_architecture():
    assert elf.read(find_library(Path("/"), "libc.so.6")).machine == elf.own_machine()


def test_a_program_has_no_soname(file):
    assert elf.read(file(program(X86_64))).soname is None


@pytest.mark.parametrize("content", [b"", b"#!/bin/sh\n", b"\x7fELF", b"INPUT(libcuda.so.1)\n"])
def test_what_is_no_elf_file_is_named_with_a_way_out(file, content):
    with pytest.raises(elf.NotAnElfFile, match=r"libx\.so is not a usable ELF file: .*; reinstall"):
        elf.read(file(content))


@pytest.mark.parametrize("length", range(0, 400, 3))
def test_a_library_cut_short_is_damaged_or_still_whole(file, length):
    """A download that broke off must cost one library and not the plugin."""
    path = file(shared_object("libcuda.so.1", X86_64)[:length])
    with contextlib.suppress(elf.NotAnElfFile):
        assert elf.read(path).soname in {None, "libcuda.so.1"}


@settings(deadline=None)
@given(position=st.integers(0, 400), value=st.integers(0, 255))
@example(position=39, value=255)  # program headers beyond any file
@example(position=55, value=255)  # program headers of 65 KiB
def test_a_flipped_byte_never_ends_in_another_error(tmp_path_factory, position, value):
    content = bytearray(shared_object("libcuda.so.1", X86_64))
    content[position % len(content)] = value
    path = tmp_path_factory.getbasetemp() / "damaged.so"
    path.write_bytes(content)
    with contextlib.suppress(elf.NotAnElfFile):
        assert isinstance(elf.read(path).machine, int)
