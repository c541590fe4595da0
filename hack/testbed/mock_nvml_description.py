"""A machine profile as the text that the mock's control program reads.

Sections and keys: `hack/mock-nvml/src/describe.c`. Numbers are those of NVML's enumerations (`nvml.h`). Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from hack.testbed.profiles import Board, GpuSpec, Machine

_BRANDS: Final = {"Tesla": 2, "GeForce": 5, "NVIDIA": 14}
_ARCHITECTURES: Final = {"Turing": 6, "Ampere": 7, "Ada Lovelace": 8, "Hopper": 9, "Blackwell": 10}
_ADDRESSING: Final = {"None": 0, "HMM": 1, "ATS": 2}


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
    if machine.platform is not None:
        yield f"platform_slot = {machine.platform.slot}"
        yield f"platform_tray = {machine.platform.tray}"
        yield f"platform_host = {machine.platform.host}"
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
