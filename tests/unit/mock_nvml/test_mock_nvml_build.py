"""What the compiled mock asks of the system it is loaded on."""

from __future__ import annotations

import ctypes
import re
import subprocess
from pathlib import Path

import pytest

from hack.testbed.mock_nvml import build, build_without

OLDEST = (2, 17)
"""glibc of the oldest base images (CentOS 7); CUDA images of today carry 2.31 and later."""


def dynamic_symbols(path: Path) -> str:
    return subprocess.run(["objdump", "-T", str(path)], capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("part", ["library", "nvidia_smi", "control"])
def test_it_loads_on_an_old_glibc(part: str) -> None:
    """Injected programs run with the C library of the container's image, which may be years older than the build machine's."""
    needed = re.findall(r"GLIBC_(\d+)\.(\d+)", dynamic_symbols(getattr(build(), part)))
    assert needed
    assert max((int(major), int(minor)) for major, minor in needed) <= OLDEST


def test_the_library_shows_nvml_functions_and_nothing_else() -> None:
    exported = re.findall(r"g +DF \.text\s+\w+\s+(?:Base\s+)?(\w+)", dynamic_symbols(build().library))
    assert len(exported) > 70
    assert {name for name in exported if not name.startswith(("nvml", "mockNvml"))} == set()


def test_a_symbol_can_really_be_missing() -> None:
    """An older driver lacks newer symbols; callers find out when they look the symbol up."""
    library = ctypes.CDLL(str(build_without(["nvmlDeviceGetAddressingMode"])))
    assert library.nvmlInitWithFlags
    with pytest.raises(AttributeError):
        _ = library.nvmlDeviceGetAddressingMode
