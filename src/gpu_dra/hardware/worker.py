"""NVML in a thread of its own, with a deadline for each call and a culprit for each hang.

NVML can hang for ever with a sick GPU, and a thread inside a C call cannot be stopped. So a thread whose present call is overdue is left to
itself and another takes over; when the stuck call returns after all, the old thread ends and its GPU is trusted again. Threads are
daemons: a stuck one never holds up the end of the process. Knows no inventory.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
import time
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, cast

from gpu_dra.core.errors import NotReady

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpu_dra.hardware.nvml import Nvml

Result = TypeVar("Result")

CALL_DEADLINE = 10.0
"""Seconds one NVML call may take; look-ups by UUID and walks over MIG devices were seen to take as long under load."""
_MOST_CHECK = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """An NVML call that is under way."""

    method: str
    gpu_index: int | None
    """The GPU it asks about; None for a call about the node."""
    since: float


class CallHung(NotReady):
    """A call did not return within the deadline."""

    def __init__(self, call: Call, deadline: float) -> None:
        whom = "NVML" if call.gpu_index is None else f"NVML, asked about the GPU at index {call.gpu_index},"
        super().__init__(
            f"{whom} did not return from `{call.method}` within {deadline:g} s; look for Xid messages in the kernel log and reboot the node"
        )
        self.gpu_index = call.gpu_index


class NvmlWorker:
    """Runs work with NVML, one piece at a time."""

    def __init__(self, nvml: Nvml, *, deadline: float = CALL_DEADLINE) -> None:
        self._nvml = nvml
        self._deadline = deadline
        self._turn = asyncio.Lock()
        self._thread: _Thread | None = None
        self._stuck: dict[_Thread, CallHung] = {}
        self._tasks: set[asyncio.Task[Any]] = set()

    def hung(self) -> dict[int | None, CallHung]:
        """Calls that still have not returned, by GPU index; None stands for a call about the node as a whole."""
        self._stuck = {thread: hang for thread, hang in self._stuck.items() if thread.is_stuck}
        return {hang.gpu_index: hang for hang in self._stuck.values()}

    async def run(self, work: Callable[[Nvml], Result]) -> Result:
        """The result of `work`, which may make any number of calls. Raises what `work` raises, and CallHung.

        A caller that is cancelled leaves at once; its work keeps its turn until it ends or hangs, since two threads in NVML, or a
        library that is closed under one of them, is worse than a wait.
        """
        task = asyncio.create_task(self._run(work))
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return await asyncio.shield(task)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # seen: its caller may be gone

    async def _run(self, work: Callable[[Nvml], Result]) -> Result:
        async with self._turn:
            thread = self._thread = self._thread or _Thread(self._nvml)
            future = asyncio.wrap_future(thread.submit(work))
            try:
                while not future.done():
                    await asyncio.wait({future}, timeout=min(_MOST_CHECK, self._deadline / 4))
                    call = thread.call
                    if not future.done() and call is not None and time.monotonic() - call.since > self._deadline:
                        raise self._abandon(thread, call)
                return future.result()
            except asyncio.CancelledError:
                self._thread = None
                thread.retire()
                raise

    def close(self) -> None:
        """Let the thread end after its present call."""
        if self._thread is not None:
            self._thread.retire()
            self._thread = None

    def _abandon(self, thread: _Thread, call: Call) -> CallHung:
        hang = CallHung(call, self._deadline)
        thread.retire()
        self._thread = None
        self._stuck[thread] = hang
        return hang


class _Retired(BaseException):
    """Ends work whose caller has given it up, at its next NVML call."""


class _Thread:
    """One thread and the NVML it calls; notes the call under way."""

    def __init__(self, nvml: Nvml) -> None:
        self.call: Call | None = None
        self._nvml = nvml
        self._retired = threading.Event()
        self._work: queue.SimpleQueue[tuple[Callable[[Nvml], Any], Future[Any]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._loop, name="nvml", daemon=True)
        self._thread.start()

    @property
    def is_stuck(self) -> bool:
        return self._thread.is_alive()

    def submit(self, work: Callable[[Nvml], Result]) -> Future[Result]:
        future: Future[Result] = Future()
        self._work.put((work, future))
        return future

    def retire(self) -> None:
        """No further call and no further work."""
        self._retired.set()
        self._work.put(None)

    def _loop(self) -> None:
        watched = cast("Nvml", _Watched(self))
        while (task := self._work.get()) is not None and not self._retired.is_set():
            work, future = task
            try:
                result = work(watched)
            except _Retired:
                future.cancel()
            except BaseException as error:
                _settle(future, error=error)
            else:
                _settle(future, result=result)

    def guarded(self, name: str, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - stands for any method of Nvml
        """Make one call, noted while it is under way."""
        if self._retired.is_set():
            raise _Retired
        gpu_index = getattr(args[0], "gpu_index", None) if args else None
        if name == "gpu":
            gpu_index = args[0]
        self.call = Call(method=name, gpu_index=gpu_index, since=time.monotonic())
        try:
            return getattr(self._nvml, name)(*args, **kwargs)
        finally:
            self.call = None


class _Watched:
    """Has every method of `Nvml`; each goes through `_Thread.guarded`."""

    def __init__(self, thread: _Thread) -> None:
        self._thread = thread

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return lambda *args, **kwargs: self._thread.guarded(name, *args, **kwargs)


def _settle(future: Future[Any], *, result: object = None, error: BaseException | None = None) -> None:
    """Hand the outcome over; a caller that has gone takes nothing."""
    with contextlib.suppress(Exception):  # cancelled meanwhile, or its loop is closed
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)
