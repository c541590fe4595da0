"""The stand-in libraries and programs are what the loader, the kernel and our own ELF reader take them for."""

from __future__ import annotations

import ctypes
import platform
import subprocess
from typing import TYPE_CHECKING

import pytest

from gpu_dra.hardware import elf
from hack.testbed.elf_stub import AARCH64, X86_64, Architecture, architecture, is_static, program, shared_object

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def here() -> Architecture:
    """The architecture that runs the tests."""
    return architecture(platform.machine())


def test_a_stub_library_can_be_loaded(tmp_path: Path, here: Architecture) -> None:
    library = tmp_path / "libcuda.so.580.105.08"
    library.write_bytes(shared_object("libcuda.so.1", here))

    assert ctypes.CDLL(str(library))


@pytest.mark.parametrize(("arch", "machine"), [(X86_64, elf.Machine.X86_64), (AARCH64, elf.Machine.AARCH64)])
def test_a_stub_library_names_its_soname_and_machine(tmp_path: Path, arch: Architecture, machine: elf.Machine) -> None:
    library = tmp_path / "libcuda.so.580.105.08"
    library.write_bytes(shared_object("libcuda.so.1", arch))

    found = elf.read(library)

    assert (found.soname, found.machine) == ("libcuda.so.1", machine)


def test_a_stub_program_runs_and_succeeds(tmp_path: Path, here: Architecture) -> None:
    path = tmp_path / "nvidia-persistenced"
    path.write_bytes(program(here))
    path.chmod(0o755)

    assert subprocess.run([path, "--verbose"], check=False).returncode == 0


def test_a_program_that_names_a_loader_is_not_static(tmp_path: Path, here: Architecture) -> None:
    source = tmp_path / "main.c"
    source.write_text("int main(void) { return 0; }\n")
    subprocess.run(["cc", "-o", tmp_path / "dynamic", source], check=True)

    assert not is_static((tmp_path / "dynamic").read_bytes())
    assert is_static(program(here))


def test_an_unknown_architecture_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="riscv64"):
        architecture("riscv64")
