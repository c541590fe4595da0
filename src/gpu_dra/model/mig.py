"""MIG partitions: profiles, placements and devices, in NVML's own terms."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Where a GPU instance sits on the memory axis of its GPU, in memory slices (NVML `nvmlGpuInstancePlacement_t`)."""

    start: int
    size: int

    def overlaps(self, other: Placement) -> bool:
        """True when the two share a memory slice."""
        return self.start < other.start + other.size and other.start < self.start + self.size

    @property
    def slices(self) -> range:
        """Indices of the occupied memory slices."""
        return range(self.start, self.start + self.size)


@dataclass(frozen=True, slots=True, kw_only=True)
class MigProfile:
    """A GPU-instance profile of one board: its name from NVML and what an instance of it holds."""

    name: str
    """As NVML prints it without the `MIG ` prefix: `1g.5gb`, `1g.10gb+me`."""
    profile_id: int
    multiprocessors: int
    copy_engines: int
    decoders: int
    encoders: int
    jpeg_engines: int
    ofa_engines: int
    memory_mib: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MigDevice:
    """One existing MIG device: a compute instance that fills its GPU instance."""

    uuid: str
    parent_minor: int
    parent_uuid: str
    gpu_instance_id: int
    compute_instance_id: int
    profile: MigProfile
    placement: Placement

    @property
    def name(self) -> str:
        """Device name in the pool: `gpu-0-mig-1g5gb-19-0`, spelled as NVIDIA's driver does."""
        profile = self.profile.name.lower().replace(".", "").replace("+", "-")
        return f"gpu-{self.parent_minor}-mig-{profile}-{self.profile.profile_id}-{self.placement.start}"
