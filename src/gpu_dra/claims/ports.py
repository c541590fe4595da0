"""What the claims room needs from others, each as small as its use, so that tests can stand in for any of them.

Blocking ports are called from a worker thread; the asynchronous ones from the event loop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpu_dra.cdi.builder import BuiltSpec, ClaimDevice
    from gpu_dra.cdi.spec import Spec
    from gpu_dra.claims.plan import PreparePlan
    from gpu_dra.claims.report import Report
    from gpu_dra.model.inventory import Inventory
    from gpu_dra.model.prepared import Effect, PreparedClaim


class SpecBuilder(Protocol):
    """Turns devices into a CDI spec (`cdi.builder.CdiBuilder`). Blocking."""

    def build(self, claim_uid: str, devices: Sequence[ClaimDevice], *, driver_version: str) -> BuiltSpec:
        """The spec, every host path in it checked. Raises GpuDraError with what is missing."""
        ...

    def missing_paths(self, spec: Spec) -> tuple[str, ...]:
        """Host paths of a spec that are gone or are something else now: device nodes with other numbers, files of a former driver."""
        ...


class SpecStore(Protocol):
    """The claims' CDI files (`cdi.writer.SpecDirectory`). Blocking."""

    def write(self, uid: str, spec: Spec) -> None:
        """Put the claim's file in place, durably. Raises NotReady."""
        ...

    def remove(self, uid: str) -> bool:
        """Delete the claim's file, durably; False when there was none. Raises NotReady."""
        ...

    def read(self, uid: str) -> Spec | None:
        """The claim's spec; None when there is no file. Raises Broken or NotReady."""
        ...

    def read_intact(self, uid: str) -> Spec | None:
        """The claim's spec when the runtime would find its devices; None when not."""
        ...

    def uids(self) -> frozenset[str]:
        """Claims that have a file. Raises NotReady."""
        ...

    def leftovers(self) -> Mapping[str, str]:
        """Temporary files that killed writers left, by name, with the UID they were for. Raises NotReady."""
        ...

    def remove_leftover(self, name: str) -> None:
        """Delete a temporary file. The caller holds the lock of the claim it was for. Raises NotReady."""
        ...


class Inventories(Protocol):
    """The node's devices (`hardware.discovery.Discovery`)."""

    @property
    def current(self) -> Inventory:
        """The newest snapshot, from memory."""
        ...

    async def refresh(self) -> Inventory:
        """A new look at the hardware now."""
        ...


class SideEffects(Protocol):
    """Changes to the host that a claim needs beyond its CDI file. Blocking.

    `apply` and `undo` are idempotent: a crash may leave any number of them half done, and they are run again.
    """

    def plan(self, plan: PreparePlan) -> tuple[Effect, ...]:
        """What this claim needs, in order. Nothing for a device under adminAccess."""
        ...

    def apply(self, effect: Effect) -> None:
        """Make the change. Raises GpuDraError."""
        ...

    def undo(self, effect: Effect) -> None:
        """Restore what was before. Raises GpuDraError."""
        ...


class DeviceUsers(Protocol):
    """Evidence that a container still uses a claim's devices. Blocking."""

    def in_use(self, claim: PreparedClaim) -> str | None:
        """Who uses them, for the log; None when nobody does."""
        ...


class ClaimsObserver(Protocol):
    """Where numbers go; the node exposes them as metrics. Called from the event loop."""

    def finished(self, report: Report) -> None:
        """One prepare or unprepare ended, well or not."""
        ...

    def set_aside(self, reason: str) -> None:
        """A journal file was moved out of the way; `reason` is one of `journal_format.Damage`."""
        ...

    def recorded(self, claims: Mapping[str, PreparedClaim]) -> None:
        """Every claim this node holds, by UID; told after each change of ours and each reconcile."""
        ...


class Unobserved:
    """Numbers go nowhere: command-line use and tests."""

    def finished(self, report: Report) -> None:
        """Not counted."""

    def set_aside(self, reason: str) -> None:
        """Not counted."""

    def recorded(self, claims: Mapping[str, PreparedClaim]) -> None:
        """Not counted."""
