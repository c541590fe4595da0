"""What can go wrong with a call to the API server fake, on demand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpu_dra.kube.errors import Unavailable

if TYPE_CHECKING:
    from gpu_dra.core.clock import Clock
    from gpu_dra.core.errors import GpuDraError
    from gpu_dra.kube.api import Resource
    from gpu_dra.kube.rest import Call, Verb


@dataclass(slots=True, kw_only=True)
class Fault:
    """Strikes calls that match every given criterion, `times` of them (None: all)."""

    verb: Verb | None
    resource: Resource | None
    name: str | None
    times: int | None
    delay: float = 0.0
    error: GpuDraError | None = None
    answer_lost: bool = False
    """The call is carried out first, and the error comes instead of its answer."""

    def strikes(self, call: Call) -> bool:
        """Whether this call is hit; counts it if so."""
        wanted = (self.verb, self.resource, self.name)
        if self.times == 0 or any(
            want is not None and want != has for want, has in zip(wanted, (call.verb, call.resource, call.name), strict=True)
        ):
            return False
        if self.times is not None:
            self.times -= 1
        return True


class Faults:
    """The faults in force, and the outage switch."""

    def __init__(self, *, clock: Clock) -> None:
        self._clock = clock
        self._faults: list[Fault] = []
        self.outage = False

    def add(self, fault: Fault) -> None:
        """Put a fault in force, after those that already are."""
        self._faults.append(fault)

    async def before(self, call: Call) -> GpuDraError | None:
        """Suffer delays and raise errors; the error returned, if any, is to be raised once the call has been carried out."""
        lost: GpuDraError | None = None
        for fault in self._faults:
            if not fault.strikes(call):
                continue
            if fault.delay:
                await self._clock.sleep(fault.delay)
            if fault.error is not None and not fault.answer_lost:
                raise fault.error
            lost = fault.error or lost
        if self.outage:
            raise Unavailable(f"{call}: the API server is away")
        return lost
