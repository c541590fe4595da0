"""Machines for `--simulate`: enough of a few boards to try the driver, its slices and its claims without a GPU.

Source of the numbers: public captures of `nvidia-smi -q` and `nvidia-smi mig -lgip`. Nothing outside the fake reads them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from gpu_dra.core.errors import Refused
from gpu_dra.model.mig import MigProfile, Placement


@dataclass(frozen=True, slots=True, kw_only=True)
class BoardProfile:
    """A way to cut a board, and where."""

    kind: int
    slices: int
    instances: int
    profile: MigProfile
    placements: tuple[Placement, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """A GPU model."""

    name: str
    brand: int
    architecture: int
    compute_capability: tuple[int, int]
    memory_mib: int
    addressing_mode: int | None
    compute_slices: int = 0
    """How many a GPU has to give; 0 where the board cannot do MIG."""
    mig_needs_reset: bool = False
    profiles: tuple[BoardProfile, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A node full of one board."""

    name: str
    board: Board
    buses: tuple[int, ...]
    driver_version: str = "580.105.08"
    cuda_driver_version: tuple[int, int] = (13, 0)


def _profiles(rows: str) -> tuple[BoardProfile, ...]:
    """Rows of `kind id slices instances name SM CE DEC ENC JPEG OFA MiB starts size`."""
    found = []
    for row in rows.strip().splitlines():
        kind, identity, slices, instances, name, sm, ce, dec, enc, jpeg, ofa, mib, starts, size = row.split()
        profile = MigProfile(
            name=name,
            profile_id=int(identity),
            multiprocessors=int(sm),
            copy_engines=int(ce),
            decoders=int(dec),
            encoders=int(enc),
            jpeg_engines=int(jpeg),
            ofa_engines=int(ofa),
            memory_mib=int(mib),
        )
        placements = tuple(Placement(start=int(start), size=int(size)) for start in starts.split(","))
        found.append(
            BoardProfile(kind=int(kind), slices=int(slices), instances=int(instances), profile=profile, placements=placements)
        )
    return tuple(found)


_A100 = Board(
    name="NVIDIA A100-SXM4-40GB",
    brand=14,
    architecture=7,
    compute_capability=(8, 0),
    memory_mib=40960,
    addressing_mode=1,
    compute_slices=7,
    mig_needs_reset=True,
    profiles=_profiles("""
        0 19 1 7 1g.5gb    14 1 0 0 0 0  4864 0,1,2,3,4,5,6 1
        7 20 1 1 1g.5gb+me 14 1 1 0 1 1  4864 0,1,2,3,4,5,6 1
        9 15 1 4 1g.10gb   14 1 1 0 0 0  9856 0,2,4,6       2
        1 14 2 3 2g.10gb   28 2 1 0 0 0  9856 0,2,4         2
        2  9 3 2 3g.20gb   42 3 2 0 0 0 19968 0,4           4
        3  5 4 1 4g.20gb   56 4 2 0 0 0 19968 0             4
        4  0 7 1 7g.40gb   98 7 5 0 1 1 40192 0             8
    """),
)
_H100 = Board(
    name="NVIDIA H100 80GB HBM3",
    brand=14,
    architecture=9,
    compute_capability=(9, 0),
    memory_mib=81559,
    addressing_mode=1,
    compute_slices=7,
    profiles=_profiles("""
        0 19 1 7 1g.10gb    16 1 1 0 1 0  9984 0,1,2,3,4,5,6 1
        7 20 1 1 1g.10gb+me 16 1 1 0 1 1  9984 0,1,2,3,4,5,6 1
        9 15 1 4 1g.20gb    26 1 1 0 1 0 20096 0,2,4,6       2
        1 14 2 3 2g.20gb    32 2 2 0 2 0 20096 0,2,4         2
        2  9 3 2 3g.40gb    60 3 3 0 3 0 40448 0,4           4
        3  5 4 1 4g.40gb    64 4 4 0 4 0 40448 0             4
        4  0 7 1 7g.80gb   132 8 7 0 7 1 81152 0             8
    """),
)
_L4 = Board(name="NVIDIA L4", brand=14, architecture=8, compute_capability=(8, 9), memory_mib=23034, addressing_mode=1)
_T4 = Board(name="Tesla T4", brand=14, architecture=6, compute_capability=(7, 5), memory_mib=15360, addressing_mode=1)

MACHINES: Final = {
    machine.name: machine
    for machine in (
        Machine(name="h100x8", board=_H100, buses=(0x1B, 0x43, 0x52, 0x61, 0x9D, 0xC3, 0xD1, 0xDF)),
        Machine(name="a100x8", board=_A100, buses=(0x07, 0x0F, 0x47, 0x4E, 0x87, 0x90, 0xB7, 0xBD)),
        Machine(name="l4x4", board=_L4, buses=(0x31, 0x4B, 0xB1, 0xCA)),
        Machine(name="t4x1", board=_T4, buses=(0x1E,)),
    )
}


def simulated_machine(name: str) -> Machine:
    """The machine called `name`. Raises Refused with the names there are."""
    try:
        return MACHINES[name]
    except KeyError as error:
        raise Refused(f"no machine {name!r} to simulate; choose one of {', '.join(sorted(MACHINES))}") from error
