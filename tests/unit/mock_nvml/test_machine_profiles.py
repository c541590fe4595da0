"""The machine profiles say what they claim to say."""

from __future__ import annotations

import math
import re
import tomllib
from uuid import UUID

import pytest

from hack.testbed.profiles import PROFILES, Board, GpuInstanceProfile, load_board, load_machine, machine_names

REQUIRED = {
    *(
        "h100x8",
        "h200x8",
        "a100x8",
        "a100x8-p4d",
        "b200x8",
        "gb200x4",
        "gb300x4",
        "gh200x1",
        "l40sx1",
        "l4x4",
        "a10x1",
        "t4x1",
        "a30x4",
    ),
    *("rtxpro6000x1", "16gpu", "fresh-boot", "lost-gpu", "nogpu"),
}
BOARDS = sorted(path.stem for path in (PROFILES / "boards").glob("*.toml"))
PARTITIONED = [board for board in map(load_board, BOARDS) if board.mig is not None]


def rows(board: Board) -> list[GpuInstanceProfile]:
    assert board.mig is not None
    return list(board.mig.profiles)


def test_the_machines_that_were_asked_for_are_there() -> None:
    assert set(machine_names()) >= REQUIRED


@pytest.mark.parametrize("name", machine_names())
def test_gpus_of_a_machine_have_places_and_identities_of_their_own(name: str) -> None:
    machine = load_machine(name)
    for values in ([g.uuid for g in machine.gpus], [g.pci for g in machine.gpus], [g.minor for g in machine.gpus]):
        assert len(set(values)) == len(machine.gpus)
    assert [gpu.index for gpu in machine.gpus] == list(range(len(machine.gpus)))
    assert all(UUID(gpu.uuid.removeprefix("GPU-")).version == 4 for gpu in machine.gpus)
    assert {gpu.numa_node for gpu in machine.gpus} <= {-1, *(node.id for node in machine.numa_nodes)}


def test_another_seed_makes_another_machine_and_the_same_seed_the_same() -> None:
    one, again, other = (load_machine("h100x8", seed=seed) for seed in ("node-a", "node-a", "node-b"))
    assert one == again
    assert not {gpu.uuid for gpu in one.gpus} & {gpu.uuid for gpu in other.gpus}


def test_a_machine_without_gpu_3_has_a_gap_in_its_minors() -> None:
    assert [(gpu.index, gpu.minor) for gpu in load_machine("minor-gap").gpus][3:5] == [(3, 4), (4, 5)]


def test_an_unknown_key_is_refused() -> None:
    """A typing error in a profile must not turn into a default."""
    board = tomllib.loads((PROFILES / "boards" / "t4-16gb.toml").read_text())
    board.pop("pci_device"), board.pop("pci_subsystem")
    with pytest.raises(TypeError, match="colour"):
        Board(key="t4", pci_device=0, pci_subsystem=0, **board, colour="green")


@pytest.mark.parametrize("board", PARTITIONED, ids=lambda board: board.key)
def test_placements_lie_on_the_memory_axis_and_hold_as_many_instances_as_the_profile_allows(board: Board) -> None:
    assert board.mig is not None
    for profile in rows(board):
        assert all(start + profile.size <= board.mig.memory_slices for start in profile.starts)
        end, disjoint = 0, 0
        for start in sorted(profile.starts):
            if start >= end:
                end, disjoint = start + profile.size, disjoint + 1
        assert 1 <= profile.instances <= min(disjoint, board.mig.compute_slices // profile.slices)


@pytest.mark.parametrize("board", PARTITIONED, ids=lambda board: board.key)
def test_profiles_of_a_board_are_told_apart_by_enum_id_and_name(board: Board) -> None:
    for field in ("enum", "id", "name"):
        assert len({getattr(profile, field) for profile in rows(board)}) == len(rows(board))


@pytest.mark.parametrize("board", PARTITIONED, ids=lambda board: board.key)
def test_the_gigabytes_in_a_name_follow_from_the_amounts(board: Board) -> None:
    """The driver's rule: eighths of the profile's memory, of the whole GiB of the board, half rounded up."""
    for profile in rows(board):
        eighths = math.ceil(profile.memory_mib / board.memory_mib * 8)
        gigabytes = math.floor(eighths / 8 * math.ceil(board.memory_mib / 1024) + 0.5)
        match = re.fullmatch(r"(\d)g\.(\d+)gb([+-].*)?", profile.name)
        assert match is not None
        assert (int(match[1]), int(match[2])) == (profile.slices, gigabytes), profile.name


@pytest.mark.parametrize(
    ("board", "profile"), [("b200-sxm-180gb", "3g.90gb"), ("gb200-186gb", "7g.186gb"), ("gb300-278gb", "1g.35gb")]
)
def test_amounts_nobody_has_seen_are_marked(board: str, profile: str) -> None:
    mig = load_board(board).mig
    assert mig is not None
    assert mig.profile(profile).unverified
