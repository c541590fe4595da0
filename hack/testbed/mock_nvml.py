"""Build the mocked NVML and steer the machine behind it.

    built = build(say=say)                                     # library, nvidia-smi and control program, kept in a cache by content
    mock = MockNvml.create(tree, machine, built)               # beside the library of a laid host tree
    mock.partition(gpu=7, profile_id=19)                       # what `nvidia-smi mig` does
    mock.fault("nvmlDeviceGetUUID", gpu=3, error=15)           # at run time, seen by every process at once

The machine's state is one file that all processes map, beside the library and named like a driver library. The C sources are in
`hack/mock-nvml/src`; nothing of the machine's rules is repeated here.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hack.testbed.cluster.cache import cache_folder, make_once
from hack.testbed.cluster.errors import LabError, say_on_stderr
from hack.testbed.mock_nvml_description import describe

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hack.testbed.cluster.errors import Say
    from hack.testbed.profiles import Machine

_SOURCES: Final = Path(__file__).resolve().parent.parent / "mock-nvml" / "src"
_FLAGS: Final = ("-std=gnu11", "-O2", "-g0", "-Wall", "-Wextra", "-Werror", "-fvisibility=hidden", "-Wl,--build-id=none")
_SHARED: Final = ("state.c", "elf_page.c", "mig.c", "mig_compute.c", "faults.c", "events.c", "capabilities.c", "locate.c")
_CONTROL: Final = ("start.c", "ctl.c", "describe.c", "show.c", *_SHARED)
_SMI: Final = ("start.c", "smi.c", "smi_devices.c", "smi_print.c", "capabilities.c", "locate.c")


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """What was built."""

    library: Path
    nvidia_smi: Path
    control: Path


def build(*, say: Say = say_on_stderr) -> Built:
    """Compile, or find what was compiled from the same sources. Raises LabError with the compiler's words."""
    folder = make_once(cache_folder() / f"mock-nvml-{_digest()}", _compile, say=say)
    return Built(library=folder / "libnvidia-ml.so.1", nvidia_smi=folder / "nvidia-smi", control=folder / "mock-nvml-ctl")


def build_without(symbols: Sequence[str], *, say: Say = say_on_stderr) -> Path:
    """The library as an older driver ships it: without `symbols`. Raises LabError."""

    def compile_without(folder: Path) -> None:
        script = folder / "symbols.map"
        script.write_text(f"{{ global: *; local: {'; '.join(symbols)}; }};\n")
        _compile_library(folder / "libnvidia-ml.so.1", f"-Wl,--version-script={script}")

    return make_once(cache_folder() / f"mock-nvml-{_digest(*symbols)}", compile_without, say=say) / "libnvidia-ml.so.1"


def _digest(*settings: str) -> str:
    digest = hashlib.sha256(" ".join((*_FLAGS, *settings)).encode())
    for source in sorted(_SOURCES.iterdir()):
        digest.update(source.name.encode() + source.read_bytes())
    return digest.hexdigest()[:16]


def _compile(folder: Path) -> None:
    library = folder / "libnvidia-ml.so.1"
    _compile_library(library)
    program = ("-nostartfiles", "-fPIE", "-pie", "-o")
    _cc(*program, str(folder / "mock-nvml-ctl"), *_paths(_CONTROL))
    _cc(*program, str(folder / "nvidia-smi"), *_paths(_SMI), str(library))


def _compile_library(library: Path, *linker: str) -> None:
    programs = set(_CONTROL + _SMI) - set(_SHARED)
    parts = sorted(source.name for source in _SOURCES.glob("*.c") if source.name not in programs)
    _cc("-shared", "-fPIC", "-Wl,-soname,libnvidia-ml.so.1", *linker, "-o", str(library), *_paths(parts))


def _cc(*arguments: str) -> None:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise LabError("the mocked NVML needs a C compiler and there is none: apt-get install gcc libc6-dev")
    done = subprocess.run([compiler, *_FLAGS, *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise LabError(f"{compiler} cannot build the mocked NVML in {_SOURCES}:\n{done.stderr}")


def _paths(names: Iterable[str]) -> list[str]:
    return [str(_SOURCES / name) for name in names]


@dataclass(frozen=True, slots=True, kw_only=True)
class MockNvml:
    """The mocked machine behind one state file."""

    state: Path
    control: Path

    @classmethod
    def create(cls, state: Path, machine: Machine, built: Built, *, host_tree: Path, driver_version: str | None = None) -> MockNvml:
        """Power up `machine` in `state`. `host_tree`: its `/proc/driver/nvidia`, as processes of the node see it."""
        mock = cls(state=state, control=built.control)
        text = "\n".join(describe(machine, host_tree=host_tree, driver_version=driver_version))
        mock._run("init", text=text)
        for index in {partition.gpu for partition in machine.partitions}:
            mock.mig_mode(index, enabled=True)
        for partition in machine.partitions:
            board = machine.gpus[partition.gpu].board
            assert board.mig is not None, f"{board.key} has no MIG, yet {machine.name} partitions it"
            mock.partition(partition.gpu, board.mig.profile(partition.profile).id, start=partition.start)
        return mock

    def show(self) -> dict[str, Any]:
        """The changing part of the machine."""
        shown: dict[str, Any] = json.loads(self._run("show"))
        return shown

    def mig_mode(self, gpu: int, *, enabled: bool) -> None:
        """Set the mode, with the reset that Ampere needs."""
        self._run("mig-mode", gpu, "on" if enabled else "off")
        if self.show()["gpus"][gpu]["mig_current"] != enabled:
            self._run("reset", gpu)

    def partition(self, gpu: int, profile_id: int, *, start: int | None = None) -> None:
        """Make a GPU instance and the compute instance that fills it."""
        self._run("mig-create", gpu, profile_id if start is None else f"{profile_id}:{start}")

    def unpartition(self, gpu: int, instance: int) -> None:
        """Destroy a GPU instance and what is in it."""
        self._run("mig-destroy", gpu, instance)

    def fault(
        self,
        function: str,
        *,
        gpu: int | None = None,
        error: int | None = None,
        after: int | None = None,
        count: int | None = None,
        delay_ms: int | None = None,
        hang: bool = False,
    ) -> int:
        """From now on `function` (`*`: every call about a GPU) fails, waits or hangs. The fault's id.

        `after` calls pass first; `count` are struck, all when None; a wait ends when the fault is cleared. Error 13 is what callers
        get for a symbol that is absent; to have it really absent, load the library of `build_without`. Raises LabError for a
        function that the mock has not: such a fault would never strike.
        """
        library = self.control.with_name("libnvidia-ml.so.1").read_bytes()
        if function != "*" and not re.search(rb"\0" + re.escape(function.encode()) + rb"(_v\d)?\0", library):
            raise LabError(f"the mocked NVML has no function {function}; `objdump -T` of its library shows which it has")
        settings = {"gpu": gpu, "error": error, "after": after, "count": count, "delay_ms": delay_ms}
        words = [f"{key}={value}" for key, value in settings.items() if value is not None]
        return int(self._run("fault-add", function, *words, *(["hang"] if hang else [])))

    def clear_fault(self, fault: int) -> None:
        """Forget one fault. Raises LabError when there is none."""
        self._run("fault-clear", fault)

    def clear_faults(self) -> None:
        """Forget all faults; what hangs goes on."""
        self._run("fault-clear")

    def lose(self, gpu: int) -> None:
        """The GPU falls off the bus."""
        self._run("lose", gpu)

    def restore(self, gpu: int) -> None:
        """It is back."""
        self._run("restore", gpu)

    def reset(self, gpu: int) -> None:
        """Reset a GPU."""
        self._run("reset", gpu)

    def recovery_action(self, gpu: int, action: int) -> None:
        """What the driver wants done (`nvmlDeviceGpuRecoveryAction_t`)."""
        self._run("recovery", gpu, action)

    def xid(self, gpu: int, code: int, *, instances: tuple[int, int] | None = None) -> None:
        """Post an XID event, of the whole GPU or of a GPU instance and compute instance."""
        self._run("xid", gpu, code, *(instances or ()))

    def double_bit_error(self, gpu: int) -> None:
        """Post an event of memory that cannot be corrected."""
        self._run("ecc", gpu, 2)

    def fabric(self, gpu: int, state: int, status: int = 0) -> None:
        """Set how far the registration with the NVLink fabric is (3: completed) and its NVML return code."""
        self._run("fabric", gpu, state, status)

    def start_process(self, gpu: int, pid: int, *, used_mib: int, instances: tuple[int, int] | None = None) -> None:
        """A process computes on the GPU, or on one MIG device of it."""
        self._run("process-add", gpu, pid, used_mib, *(instances or ()))

    def end_process(self, pid: int) -> None:
        """It is gone."""
        self._run("process-end", pid)

    def driver_version(self, version: str) -> None:
        """Exchange library and kernel module."""
        self._run("driver-version", version)

    def kernel_version(self, version: str) -> None:
        """Exchange the kernel module alone, so that the library does not match it."""
        self._run("kernel-version", version)

    def driver_loaded(self, *, loaded: bool) -> None:
        """Load or unload the kernel module."""
        self._run("driver-loaded", int(loaded))

    def reboot(self) -> None:
        """Clear what a reboot clears."""
        self._run("reboot")

    def _run(self, command: str, *words: object, text: str | None = None) -> str:
        arguments = [str(self.control), str(self.state), command, *map(str, words)]
        done = subprocess.run(arguments, input=text, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise LabError(f"`{' '.join(arguments)}` failed: {done.stderr.strip()}")
        return done.stdout
