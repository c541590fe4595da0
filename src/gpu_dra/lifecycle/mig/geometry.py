"""What a GPU's board can be cut into, how it is cut now, and what has to be done for what is wanted. Pure.

Rules as the hardware has them (NVIDIA MIG user guide): instances must not share memory slices, their compute slices must not be more than
the board's, and each profile has placements of its own and a greatest number.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpu_dra.core.errors import Refused

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from gpu_dra.lifecycle.mig.wish import Wish
    from gpu_dra.model.gpu import MigMode
    from gpu_dra.model.mig import Placement


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """A GPU-instance profile of a board."""

    name: str
    profile_id: int
    slices: int
    """Compute slices."""
    memory_mib: int
    instances: int
    """How many the board can have at most."""
    placements: tuple[Placement, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """A GPU instance: one that exists, or one to be made."""

    profile_name: str
    placement: Placement
    complete: bool = True
    """One compute instance fills it; false is what a killed change leaves, or a person."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """A GPU as it is cut now. An empty `profiles` on a GPU with MIG off means that its driver does not tell them before it is on."""

    index: int
    """NVML's."""
    minor: int
    uuid: str
    product_name: str
    pci: str
    pci_id: str
    """Device and vendor, `0x20b010de`."""
    mode: MigMode | None
    """None where the GPU cannot do MIG."""
    profiles: tuple[Profile, ...] = ()
    partitions: tuple[Partition, ...] = ()

    @property
    def can_mig(self) -> bool:
        """Whether it can be cut at all."""
        return self.mode is not None

    @property
    def name(self) -> str:
        """`gpu-3 (0000:65:00.0)`."""
        return f"gpu-{self.minor} ({self.pci})"


@dataclass(frozen=True, slots=True, kw_only=True)
class GeometryChange:
    """A GPU that is not cut as wanted: its partitions are destroyed, its mode is changed where it differs, the wanted ones are made."""

    board: Board
    wish: Wish

    @property
    def switches_mode(self) -> bool:
        """Whether the mode differs, now or after the next reset."""
        mode = self.board.mode
        return mode is None or not mode.current == mode.pending == self.wish.enabled

    @property
    def waits_for_reset(self) -> bool:
        """The mode was asked for already, and the GPU takes it at its next reset only (Ampere)."""
        mode = self.board.mode
        return mode is not None and mode.current != mode.pending == self.wish.enabled

    def __str__(self) -> str:
        return f"{self.board.name}: MIG {'on' if self.wish.enabled else 'off'}{_listed(self.wish.partitions)}"


def plan(board: Board, wish: Wish) -> GeometryChange | None:
    """The change that `wish` asks of the board, None when it is cut so already. Raises Refused when it can never be cut so."""
    if board.mode is None:
        raise Refused(f"{board.name}, a {board.product_name}, cannot do MIG")
    change = GeometryChange(board=board, wish=wish)
    as_wanted = all(each.complete for each in board.partitions) and _count(board.partitions) == dict(wish.partitions)
    if as_wanted and not change.switches_mode:
        return None
    if board.profiles:
        arrange(board, wish.partitions)
    return change


def arrange(board: Board, wanted: Mapping[str, int]) -> tuple[Partition, ...]:
    """Where each wanted partition goes on the empty board. Raises Refused when they do not fit, or one is none of the board's."""
    profiles = {profile.name: profile for profile in board.profiles}
    for name, count in wanted.items():
        if name not in profiles:
            raise Refused(f"{board.name}, a {board.product_name}, has no MIG profile {name}; it has {', '.join(sorted(profiles))}")
        if count > profiles[name].instances:
            raise Refused(
                f"{board.name}, a {board.product_name}, can have at most {profiles[name].instances} × {name}, not {count}"
            )
    wishes = [profiles[name] for name, count in wanted.items() for _ in range(count)]
    wishes.sort(key=lambda profile: (-max(each.size for each in profile.placements), -profile.slices, profile.name))
    most_slices = max((profile.slices for profile in board.profiles), default=0)
    found = _place(wishes, ()) if sum(profile.slices for profile in wishes) <= most_slices else None
    if found is None:
        raise Refused(
            f"{board.name}, a {board.product_name}, cannot be cut into{_listed(wanted)[1:]}: they do not fit beside each other"
        )
    return found


def _place(wishes: Sequence[Profile], placed: tuple[Partition, ...]) -> tuple[Partition, ...] | None:
    """Backtracking over at most seven instances; equal profiles are placed in rising order, so that nothing is tried twice."""
    if not wishes:
        return placed
    profile = wishes[0]
    same = [each.placement.start for each in placed if each.profile_name == profile.name]
    for placement in sorted(profile.placements, key=lambda each: each.start):
        if (same and placement.start <= max(same)) or any(placement.overlaps(each.placement) for each in placed):
            continue
        found = _place(wishes[1:], (*placed, Partition(profile_name=profile.name, placement=placement)))
        if found is not None:
            return found
    return None


def _listed(partitions: Mapping[str, int]) -> str:
    return "".join(f", {count} × {name}" for name, count in sorted(partitions.items()))


def _count(partitions: Iterable[Partition]) -> dict[str, int]:
    return dict(Counter(each.profile_name for each in partitions))
