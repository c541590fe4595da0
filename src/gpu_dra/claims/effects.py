"""The side effects of a version that has none: claims for whole GPUs and existing MIG devices change nothing but the CDI directory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpu_dra.core.errors import Broken

if TYPE_CHECKING:
    from gpu_dra.claims.plan import PreparePlan
    from gpu_dra.model.prepared import Effect


class NoSideEffects:
    """Plans nothing, and does not pretend to undo what a newer version recorded."""

    def plan(self, plan: PreparePlan) -> tuple[Effect, ...]:
        """Nothing."""
        return ()

    def apply(self, effect: Effect) -> None:
        """Raises Broken."""
        raise _unknown(effect)

    def undo(self, effect: Effect) -> None:
        """Raises Broken."""
        raise _unknown(effect)


def _unknown(effect: Effect) -> Broken:
    return Broken(
        f"the claim's record has a side effect {effect.kind!r} that this version does not know; run the version that wrote it"
    )
