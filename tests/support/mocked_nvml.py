"""nvidia-ml-py on the mocked library, for tests of the mock itself.

`pynvml` loads a library once a process and keeps its function pointers; here both globals are set for the length of a test and put back.
"""

from __future__ import annotations

import ctypes
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pynvml
import pytest

from hack.testbed.mock_nvml import Built, MockNvml, build
from hack.testbed.profiles import load_machine

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def power_up(directory: Path, profile: str, *, host_tree: Path | None = None) -> MockNvml:
    """A machine of its own in `directory`."""
    state = directory / "libnvidia-mockstate.so.1"
    return MockNvml.create(state, load_machine(profile), build(), host_tree=host_tree or directory / "no-host-tree")


@contextmanager
def loaded(mock: MockNvml, *, library: Path | None = None) -> Iterator[Any]:
    """`pynvml` on the mocked library, not initialised; shut down at the end as often as it was initialised."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pynvml, "nvmlLib", ctypes.CDLL(str(library or build().library)))
        patch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
        patch.setattr(pynvml, "_nvmlLib_refcount", 0)
        patch.setenv("MOCK_NVML_STATE", str(mock.state))
        try:
            yield pynvml
        finally:
            while pynvml._nvmlLib_refcount:
                pynvml.nvmlShutdown()


@contextmanager
def initialised(mock: MockNvml) -> Iterator[Any]:
    """`pynvml` after `nvmlInit`."""
    with loaded(mock) as nvml:
        nvml.nvmlInit()
        yield nvml


def gpus(nvml: Any) -> list[Any]:
    """Handles of all GPUs by index."""
    return [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]


def smi(mock: MockNvml, *arguments: str, root: Path, before: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    """Run nvidia-smi with `root` in place of the file system's root for device nodes; `before` is put before the command."""
    built: Built = build()
    environment = {"MOCK_NVML_STATE": str(mock.state), "MOCK_NVML_ROOT": str(root), "LD_LIBRARY_PATH": str(built.library.parent)}
    command = [*before, "env", *(f"{key}={value}" for key, value in environment.items()), str(built.nvidia_smi), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
