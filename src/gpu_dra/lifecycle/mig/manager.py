"""Keep a node's GPUs cut as its label says.

Contract: NVIDIA's MIG manager, label `nvidia.com/mig.config` asks, `nvidia.com/mig.config.state` answers pending, success or failed.
Beyond it: nobody's claim is broken, whoever stands in the way is named, only GPUs that differ are touched, and the geometry is compared
with the label again and again, so that it comes back after a reboot. Each look goes

    label -> boards -> changes -> holders? -> reserve -> withdrawn? -> holders? -> destroy, switch, make -> read back -> give back

and may be killed or stopped at any arrow: the next look starts over, and reservations end by themselves.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final, TypeVar

from gpu_dra import DRIVER_NAME
from gpu_dra.core.errors import Broken, Conflict, GpuDraError, NotReady
from gpu_dra.hardware.reservations import Reservation
from gpu_dra.hardware.worker import CallHung
from gpu_dra.kube.api import RESOURCE_CLAIMS, RESOURCE_SLICES
from gpu_dra.lifecycle.mig import hardware
from gpu_dra.lifecycle.mig.geometry import arrange, plan
from gpu_dra.lifecycle.mig.holders import holders, minor_of
from gpu_dra.lifecycle.mig.wish import wishes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from gpu_dra.core.clock import Clock
    from gpu_dra.hardware.host import HostPaths
    from gpu_dra.hardware.nvml import Nvml
    from gpu_dra.hardware.reservations import Reservations
    from gpu_dra.hardware.worker import NvmlWorker
    from gpu_dra.kube.api import KubeApi
    from gpu_dra.lifecycle.mig.geometry import Board, GeometryChange
    from gpu_dra.lifecycle.mig.wish import Rule

Result = TypeVar("Result")

log = logging.getLogger(__name__)

RESERVED_SECONDS: Final = 300.0
"""After which a reservation of a dead agent ends. Destroying and making seven instances takes about 15 s a GPU."""
WITHDRAWN_SECONDS: Final = 30.0
"""For the plugin to take a reserved GPU out of its slices; it looks every second and writes at most every two."""
POLL_SECONDS: Final = 0.5
SWITCH_SECONDS: Final = 15.0
"""For others to let go of NVML before a change of mode."""


class ModeRefused(Conflict):
    """Somebody has NVML open, so that no GPU of this node can change its mode now."""


class MigManager:
    """Geometry of one node."""

    def __init__(
        self,
        api: KubeApi,
        worker: NvmlWorker,
        reservations: Reservations,
        *,
        node_name: str,
        host: HostPaths,
        configs: Callable[[], Mapping[str, tuple[Rule, ...]]],
        clock: Clock,
    ) -> None:
        """`configs` reads the administrator's file, which may change; raises Refused."""
        self._api = api
        self._worker = worker
        self._reservations = reservations
        self._node_name = node_name
        self._host = host
        self._configs = configs
        self._clock = clock
        self.worked = False
        """Whether the newest `apply` took a GPU out of service, successfully or not."""

    async def boards(self) -> tuple[Board, ...]:
        """The GPUs as they are cut now. Raises NvmlError, CallHung."""
        return await self._on_hardware(lambda nvml: hardware.read_boards(nvml, self._host))

    async def boards_that_answer(self) -> tuple[Board, ...]:
        """The same for whoever wants to tell and not to change: a sick GPU hides no other. Raises NvmlError, CallHung."""
        return await self._on_hardware(lambda nvml: hardware.read_boards_that_answer(nvml, self._host))

    async def changes(self, name: str) -> tuple[GeometryChange, ...]:
        """What configuration `name` asks to be changed. Raises Refused when it cannot be had on this node."""
        boards = await self.boards()
        by_index = {board.index: board for board in boards}
        wanted = wishes(name, boards, self._configs())
        return tuple(change for index, wish in wanted.items() if (change := plan(by_index[index], wish)) is not None)

    async def apply(self, changes: Sequence[GeometryChange], name: str) -> None:
        """Make the changes to GPUs that nobody holds, then tell of all others at once.

        Raises NotReady when all that is left passes by itself: holders who end, a reset, a plugin that does not withdraw a GPU. Raises
        Broken when the hardware will not.
        """
        self.worked = False
        possible = [change for change in changes if not change.waits_for_reset]
        left: dict[int, GpuDraError] = {
            change.board.minor: hardware.reset_needed(change) for change in changes if change.waits_for_reset
        }
        left |= await self._held(possible)
        if free := [change for change in possible if change.board.minor not in left]:
            left |= await self._apply_reserved(free, name)
        if left:
            texts = [str(left[change.board.minor]) for change in changes if change.board.minor in left]
            passes = all(isinstance(error, Conflict | NotReady) for error in left.values())
            raise (NotReady if passes else Broken)("; ".join(dict.fromkeys(texts)))

    async def _apply_reserved(self, changes: Sequence[GeometryChange], name: str) -> dict[int, GpuDraError]:
        """Work on GPUs that are offered to nobody meanwhile; returns why some are not cut, by minor.

        Whoever is stopped in the midst leaves the reservations to end by themselves: an NVML call that has begun goes on.
        """
        self.worked = True
        await self._reserve(changes, name)
        try:
            await self._until_withdrawn(changes)
            left: dict[int, GpuDraError] = dict(await self._held(changes))
            left |= await self._apply_each([change for change in changes if change.board.minor not in left], name)
        except CallHung:
            raise
        except GpuDraError:
            await self._give_back(changes)
            raise
        await self._give_back(changes)
        return left

    async def _apply_each(self, changes: Sequence[GeometryChange], name: str) -> dict[int, GpuDraError]:
        """One GPU after the other. One that fails does not keep the next from its turn, except where somebody has NVML open."""
        failed: dict[int, GpuDraError] = {}
        for done, change in enumerate(changes):
            await self._reserve(changes[done:], name)
            try:
                await self._apply_one(change, name)
            except CallHung:
                raise
            except ModeRefused as error:
                failed |= dict.fromkeys((each.board.minor for each in changes[done:]), error)
                break
            except (Conflict, NotReady) as error:
                failed[change.board.minor] = NotReady(_named(change, error))
            except GpuDraError as error:
                failed[change.board.minor] = Broken(_named(change, error))
        return failed

    async def _apply_one(self, change: GeometryChange, name: str) -> None:
        log.info("cutting a GPU", extra={"gpu": change.board.name, "to": str(change)})
        index, wish = change.board.index, change.wish
        await self._on_hardware(lambda nvml: hardware.clear(nvml, change.board))
        if change.switches_mode:
            await self._reserve([change], name, exclusive=True)
            await self._switch(change)
            await self._reserve([change], name)
        board = await self._board(index)
        if wish.partitions:
            partitions = arrange(board, wish.partitions)
            await self._on_hardware(lambda nvml: hardware.build(nvml, board, partitions))
        if plan(await self._board(index), wish) is not None:
            raise Broken(f"{board.name}: NVML reported success, and yet the GPU is not cut as {name} says; see the kernel log")

    async def _switch(self, change: GeometryChange) -> None:
        """Change the mode, again for a while when somebody is in the way: the plugin lets go of NVML within a second or two.

        Raises ModeRefused when somebody stays in the way.
        """
        end = self._clock.monotonic() + SWITCH_SECONDS
        while True:
            try:
                return await self._on_hardware(lambda nvml: hardware.switch_mode(nvml, change))
            except Conflict as error:
                if self._clock.monotonic() >= end:
                    raise ModeRefused(_named(change, error)) from error
                await self._clock.sleep(POLL_SECONDS)

    async def _held(self, changes: Sequence[GeometryChange]) -> dict[int, GpuDraError]:
        """GPUs that are to be changed and that somebody holds, by minor, with whom they wait for."""
        found = holders((await self._api.list(RESOURCE_CLAIMS)).items, node_name=self._node_name)
        return {
            minor: Conflict(f"{change.board.name} waits for {', '.join(found[minor])}")
            for change in changes
            if (minor := change.board.minor) in found
        }

    async def _until_withdrawn(self, changes: Sequence[GeometryChange]) -> None:
        """Wait until no slice of this node has a device of these GPUs. Raises NotReady when the plugin does not take them out."""
        minors = {change.board.minor for change in changes}
        end = self._clock.monotonic() + WITHDRAWN_SECONDS
        while offered := minors & await self._offered():
            if self._clock.monotonic() >= end:
                names = ", ".join(f"gpu-{minor}" for minor in sorted(offered))
                raise NotReady(
                    f"{names} are still offered {WITHDRAWN_SECONDS:g} s after the plugin was asked to withdraw them, so nothing was "
                    "changed; see whether the gpu-dra plugin runs on this node and has the same --kubelet-plugins-directory-path"
                )
            await self._clock.sleep(POLL_SECONDS)

    async def _offered(self) -> set[int]:
        fields = {"spec.driver": DRIVER_NAME, "spec.nodeName": self._node_name}
        slices = (await self._api.list(RESOURCE_SLICES, field_selector=fields)).items
        names = [device["name"] for slice_ in slices for device in slice_["spec"].get("devices") or ()]
        return {minor for name in names if (minor := minor_of(name)) is not None}

    async def _reserve(self, changes: Sequence[GeometryChange], name: str, *, exclusive: bool = False) -> None:
        until, reason = self._clock.monotonic() + RESERVED_SECONDS, f"its MIG geometry is being changed to {name}"
        for change in changes:
            reservation = Reservation(uuid=change.board.uuid, reason=reason, until=until, exclusive=exclusive)
            await asyncio.to_thread(self._reservations.write, reservation)

    async def _give_back(self, changes: Sequence[GeometryChange]) -> None:
        for change in changes:
            await asyncio.to_thread(self._reservations.remove, change.board.uuid)

    async def _board(self, index: int) -> Board:
        return await self._on_hardware(lambda nvml: hardware.read_board(nvml, self._host, index))

    async def _on_hardware(self, work: Callable[[Nvml], Result]) -> Result:
        """One piece of work in a session of its own: no handle is kept, so that the driver may be exchanged between two pieces.

        Raises CallHung while a call of before has not returned: to open a session closes the one under it.
        """
        for hang in self._worker.hung().values():
            raise hang

        def in_session(nvml: Nvml) -> Result:
            nvml.open()
            try:
                return work(nvml)
            finally:
                nvml.close()

        return await self._worker.run(in_session)


def _named(change: GeometryChange, error: GpuDraError) -> str:
    """The error, which NVML words without a GPU, with its GPU."""
    text = str(error)
    return text if change.board.name in text else f"{change.board.name}: {text}"
