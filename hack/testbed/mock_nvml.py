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
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hack.testbed.cluster.cache import cache_folder, make_once
from hack.testbed.cluster.errors import LabError, say_on_stderr

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from hack.testbed.cluster.errors import Say
    from hack.testbed.profiles import Board, GpuSpec, Machine

_SOURCES: Final = Path(__file__).resolve().parent.parent / "mock-nvml" / "src"
_FLAGS: Final = ("-std=gnu11", "-O2", "-g0", "-Wall", "-Wextra", "-Werror", "-fvisibility=hidden", "-Wl,--build-id=none")
_PROGRAM_ONLY: Final = {"ctl.c", "describe.c", "show.c", "start.c", "smi.c", "smi_machine.c"}
_CONTROL: Final = (
    *("ctl.c", "describe.c", "show.c", "start.c", "state.c", "mig.c", "mig_compute.c", "faults.c", "events.c", "capabilities.c"),
    "elf_page.c",
)
_SMI: Final = ("smi.c", "smi_machine.c", "start.c", "capabilities.c")

_BRANDS: Final = {"Tesla": 2, "GeForce": 5, "NVIDIA": 14}
_ARCHITECTURES: Final = {"Turing": 6, "Ampere": 7, "Ada Lovelace": 8, "Hopper": 9, "Blackwell": 10}
_ADDRESSING: Final = {"None": 0, "HMM": 1, "ATS": 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """What was built."""

    library: Path
    nvidia_smi: Path
    control: Path


def build(*, say: Say = say_on_stderr) -> Built:
    """Compile, or find what was compiled from the same sources. Raises LabError with the compiler's words."""
    digest = hashlib.sha256(" ".join(_FLAGS).encode())
    for source in sorted(_SOURCES.iterdir()):
        digest.update(source.name.encode() + source.read_bytes())
    folder = make_once(cache_folder() / f"mock-nvml-{digest.hexdigest()[:16]}", _compile, say=say)
    return Built(library=folder / "libnvidia-ml.so.1", nvidia_smi=folder / "nvidia-smi", control=folder / "mock-nvml-ctl")


def _compile(folder: Path) -> None:
    library = folder / "libnvidia-ml.so.1"
    parts = sorted(source.name for source in _SOURCES.glob("*.c") if source.name not in _PROGRAM_ONLY)
    _cc("-shared", "-fPIC", "-Wl,-soname,libnvidia-ml.so.1", "-o", str(library), *_paths(parts), "-lpthread", "-ldl")
    program = ("-nostartfiles", "-fPIE", "-pie", "-o")
    _cc(*program, str(folder / "mock-nvml-ctl"), *_paths(_CONTROL))
    _cc(*program, str(folder / "nvidia-smi"), *_paths(_SMI), str(library))


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
    ) -> None:
        """From now on `function` (`*`: every call about a GPU) fails, waits or hangs; error 13 is a symbol that is absent."""
        settings = {"gpu": gpu, "error": error, "after": after, "count": count, "delay_ms": delay_ms}
        words = [f"{key}={value}" for key, value in settings.items() if value is not None]
        self._run("fault-add", function, *words, *(["hang"] if hang else []))

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

    def xid(self, gpu: int, code: int) -> None:
        """Post an XID event."""
        self._run("xid", gpu, code)

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


def describe(machine: Machine, *, host_tree: Path, driver_version: str | None = None) -> Iterator[str]:
    """The machine as the text that the control program's `init` reads."""
    version = driver_version or machine.driver_version
    major, _, minor = machine.cuda_version.partition(".")
    yield from _section(
        "machine",
        driver_version=version,
        library_version=version,
        host_tree=host_tree,
        driver_loaded=1,
        cuda_version=int(major) * 1000 + int(minor) * 10,
        nvswitches=machine.nvswitches,
    )
    if machine.fabric is not None:
        yield "fabric_present = 1"
        yield f"fabric_clique = {machine.fabric.clique}"
        yield f"cluster_uuid = {machine.fabric.cluster_uuid.replace('-', '')}"
    for node in machine.numa_nodes:
        yield from _section("numa", id=node.id, cpus=" ".join(map(str, _cpu_words(node.cpus))))
    for board in machine.boards:
        yield from _board(board)
    for gpu in machine.gpus:
        yield from _gpu(gpu, machine)


def _board(board: Board) -> Iterator[str]:
    compute_major, _, compute_minor = board.compute_capability.partition(".")
    yield from _section(
        "board",
        product=board.product,
        vbios=board.vbios,
        gpu_part=board.gpu_part,
        brand=_BRANDS[board.brand],
        architecture=_ARCHITECTURES[board.architecture],
        compute_major=compute_major,
        compute_minor=compute_minor,
        multiprocessors=board.multiprocessors,
        pci_device=board.pci_device,
        pci_subsystem=board.pci_subsystem,
        pcie_generation=board.pcie_generation,
        nvlinks=board.nvlinks,
        addressing_mode=_ADDRESSING[board.addressing_mode],
        power_limit_watts=board.power_limit_watts,
        clock_graphics=board.clocks_mhz["graphics"],
        clock_memory=board.clocks_mhz["memory"],
        clock_video=board.clocks_mhz["video"],
        memory_mib=board.memory_mib,
        reserved_mib=board.reserved_mib,
        bar1_mib=board.bar1_mib,
        mig_capable=int(board.mig is not None),
    )
    if board.mig is None:
        return
    yield f"memory_slices = {board.mig.memory_slices}"
    yield f"compute_slices = {board.mig.compute_slices}"
    yield f"mode_needs_reset = {int(board.mig.mode_needs_reset)}"
    yield f"mode_survives_reboot = {int(board.mig.mode_survives_reboot)}"
    for profile in board.mig.profiles:
        yield from _section(
            "profile",
            name=profile.name,
            enum=profile.enum,
            id=profile.id,
            slices=profile.slices,
            multiprocessors=profile.multiprocessors,
            copy_engines=profile.copy_engines,
            decoders=profile.decoders,
            encoders=profile.encoders,
            jpeg_engines=profile.jpeg_engines,
            ofa_engines=profile.ofa_engines,
            memory_mib=profile.memory_mib,
            instances=profile.instances,
            size=profile.size,
            starts=" ".join(map(str, profile.starts)),
        )


def _gpu(gpu: GpuSpec, machine: Machine) -> Iterator[str]:
    domain, bus, rest = gpu.pci.split(":")
    device, _, function = rest.partition(".")
    yield from _section(
        "gpu",
        uuid=gpu.uuid,
        serial=gpu.serial,
        pcie_root=gpu.pcie_root,
        board=machine.boards.index(gpu.board),
        minor=gpu.minor,
        domain=int(domain, 16),
        bus=int(bus, 16),
        device=int(device, 16),
        function=int(function, 16),
        module_id=gpu.module_id,
        numa_node=gpu.numa_node if gpu.numa_node >= 0 else 0xFFFFFFFF,
        lost=int(gpu.lost),
        fabric_state=3 if machine.fabric is not None else 0,
    )


def _section(section: str, **values: object) -> Iterator[str]:
    yield f"[{section}]"
    for key, value in values.items():
        yield f"{key} = {value}"


def _cpu_words(cpus: str) -> list[int]:
    """A kernel CPU list (`0-3,8`) as 64-bit words, lowest first."""
    bits = 0
    for part in cpus.split(","):
        first, _, last = part.partition("-")
        for cpu in range(int(first), int(last or first) + 1):
            bits |= 1 << cpu
    return [bits >> shift & (2**64 - 1) for shift in range(0, max(bits.bit_length(), 1), 64)]
