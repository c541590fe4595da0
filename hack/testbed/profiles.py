"""Machine profiles: what a mocked machine is made of.

Reads `hack/mock-nvml/profiles/*.toml` (machines) and `profiles/boards/*.toml` (GPU models) into frozen values. A machine names a
board and gives each GPU its place; it may extend another machine and say what differs. Amounts nobody has seen on hardware carry
`unverified`. UUIDs and serials are derived from machine, minor and a seed, so they are stable and two nodes can differ.
Knows nothing of NVML calls, of the C library or of the host's files.
"""

from __future__ import annotations

import hashlib
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

PROFILES = Path(__file__).resolve().parent.parent / "mock-nvml" / "profiles"


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuInstanceProfile:
    """One GPU-instance profile of a board. `enum` is what NVML is asked with, `id` what it answers."""

    name: str
    """As NVML prints it without the `MIG ` prefix."""
    enum: int
    id: int
    slices: int
    """Compute slices; also the width of the compute instance that fills it."""
    multiprocessors: int
    copy_engines: int
    decoders: int
    encoders: int
    jpeg_engines: int
    ofa_engines: int
    memory_mib: int
    instances: int
    """How many fit on an empty GPU."""
    starts: tuple[int, ...]
    """First memory slice of every possible placement."""
    size: int
    """Memory slices a placement covers."""
    unverified: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Mig:
    """How a board is partitioned."""

    memory_slices: int
    compute_slices: int
    mode_needs_reset: bool
    """True on Ampere: a new mode is pending until the GPU is reset."""
    mode_survives_reboot: bool
    profiles: tuple[GpuInstanceProfile, ...]

    def profile(self, name: str) -> GpuInstanceProfile:
        """The profile called `name`. Raises KeyError when the board has none."""
        for profile in self.profiles:
            if profile.name == name:
                return profile
        raise KeyError(name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """A GPU model."""

    key: str
    product: str
    brand: str
    architecture: str
    compute_capability: str
    multiprocessors: int
    memory_mib: int
    reserved_mib: int
    bar1_mib: int
    pci_device: int
    """Device and vendor as NVML packs them: `0x233010DE`."""
    pci_subsystem: int
    pcie_generation: int
    nvlinks: int
    addressing_mode: str
    """`HMM`, `ATS` or `None`."""
    vbios: str
    gpu_part: str
    power_limit_watts: int
    clocks_mhz: dict[str, int]
    mig: Mig | None = None
    unverified: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSpec:
    """One GPU and where it sits."""

    index: int
    """Position in NVML's enumeration."""
    minor: int
    """Number of `/dev/nvidia<minor>`."""
    pci: str
    """Address as sysfs spells it: `0000:1b:00.0`."""
    pcie_root: str
    """Root complex as sysfs spells it: `pci0000:15`."""
    numa_node: int
    """-1 when the platform reports none."""
    module_id: int
    uuid: str
    serial: str
    board: Board
    lost: bool = False
    """Fell off the bus while the driver ran."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NumaNode:
    """A NUMA node and its CPUs in the kernel's list format."""

    id: int
    cpus: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FabricSpec:
    """NVLink fabric of the machine. An all-zero cluster is what a single HGX box reports."""

    clique: int
    cluster_uuid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Platform:
    """Place of a machine in its rack (NVML `nvmlPlatformInfo_t`)."""

    slot: int
    tray: int
    host: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """A GPU instance with one full compute instance that is there from the start."""

    gpu: int
    profile: str
    start: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A machine with its driver as it is right after start."""

    name: str
    driver_version: str
    cuda_version: str
    cpu_architecture: str
    """`x86_64` or `aarch64`."""
    kernel_module: str
    """`open` or `proprietary`; decides the wording of `/proc/driver/nvidia/version`."""
    nvswitches: int
    char_majors: dict[str, int]
    """Character device majors by the name `/proc/devices` prints."""
    numa_nodes: tuple[NumaNode, ...]
    gpus: tuple[GpuSpec, ...]
    fabric: FabricSpec | None = None
    platform: Platform | None = None
    """None when the machine is not part of a rack-scale system."""
    partitions: tuple[Partition, ...] = ()
    device_nodes_at_boot: bool = True
    """False: nothing has made `/dev/nvidia*` yet."""
    unverified: bool = False
    boards: tuple[Board, ...] = field(default=())
    """The distinct boards of `gpus`."""


def machine_names() -> tuple[str, ...]:
    """Names of all machine profiles, sorted."""
    return tuple(sorted(path.stem for path in PROFILES.glob("*.toml")))


def load_board(key: str) -> Board:
    """Read `boards/<key>.toml`. Raises FileNotFoundError for an unknown board, TypeError for a key the format has not."""
    table = tomllib.loads((PROFILES / "boards" / f"{key}.toml").read_text())
    mig = table.pop("mig", None)
    for identity in ("pci_device", "pci_subsystem"):
        table[identity] = int(table[identity], 16)
    return Board(key=key, mig=_mig(mig) if mig else None, **table)


def load_machine(name: str, *, seed: str = "") -> Machine:
    """Read `<name>.toml`; `seed` (say, the node's name) gives the GPUs other UUIDs. Raises as `load_board`."""
    table = _machine_table(name)
    board = load_board(table.pop("board"))
    absent, lost = set(table.pop("absent", ())), set(table.pop("lost", ()))
    present = [row for row in table.pop("gpus") if row["minor"] not in absent]
    gpus = tuple(
        GpuSpec(
            **{**row, "index": index},
            uuid=_uuid(f"{seed}/{name}/{row['minor']}"),
            serial=_serial(f"{seed}/{name}/{row['minor']}"),
            board=board,
            lost=row["minor"] in lost,
        )
        for index, row in enumerate(present)
    )
    fabric = table.pop("fabric", None)
    platform = table.pop("platform", None)
    return Machine(
        name=name,
        gpus=gpus,
        boards=(board,) if gpus else (),
        numa_nodes=tuple(NumaNode(**row) for row in table.pop("numa_nodes")),
        fabric=FabricSpec(**fabric) if fabric else None,
        platform=Platform(**platform) if platform else None,
        partitions=tuple(Partition(**row) for row in table.pop("partitions", ())),
        **table,
    )


def _machine_table(name: str) -> dict[str, Any]:
    table = tomllib.loads((PROFILES / f"{name}.toml").read_text())
    base = table.pop("extends", None)
    return {**_machine_table(base), **table} if base else table


def _mig(table: dict[str, Any]) -> Mig:
    rows = table.pop("profiles")
    return Mig(profiles=tuple(GpuInstanceProfile(**{**row, "starts": tuple(row["starts"])}) for row in rows), **table)


def _uuid(identity: str) -> str:
    return f"GPU-{UUID(bytes=hashlib.sha256(identity.encode()).digest()[:16], version=4)}"


def _serial(identity: str) -> str:
    """Thirteen digits, as boards print them."""
    return f"{int.from_bytes(hashlib.sha256(identity.encode()).digest()[16:24], 'big') % 10**13:013d}"
