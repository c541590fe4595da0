"""Kills the claims room at every line that touches state, and looks at what a restart makes of it.

Run as `python -m tests.component.crash_worker SCENARIO DIRECTORY`; prints JSON. For each line number n it forks a process that does the
scenario's operation and kills itself with SIGKILL before the n-th line of the modules below; then, for each way in which the world may
go on, a process that starts anew on a copy of what is left on disk. Ends when the operation survives to its end.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import shutil
import signal
import sys
import threading
import traceback
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import FrameType
from typing import Any

import gpu_dra.cdi.writer
import gpu_dra.claims.host_work
import gpu_dra.claims.journal
import gpu_dra.core.files
import gpu_dra.core.locks
from gpu_dra.claims.manager import ClaimSettings
from gpu_dra.core.errors import Conflict
from gpu_dra.model.prepared import Phase
from tests.unit.claims import samples
from tests.unit.claims.lab import Node

_MODULES = (
    gpu_dra.cdi.writer,
    gpu_dra.claims.host_work,
    gpu_dra.claims.journal,
    gpu_dra.core.files,
    gpu_dra.core.locks,
)
_FILES = frozenset(module.__file__ for module in _MODULES)
_CLAIM = samples.ref(1)
_OTHER = samples.ref(2)
_GRACE = 600

Step = Callable[[Node], Awaitable[None]]


async def nothing(_node: Node) -> None:
    """The scenario begins on a fresh node."""


async def prepare(node: Node) -> None:
    await node.manager.prepare(_CLAIM)


async def unprepare(node: Node) -> None:
    await node.manager.unprepare(_CLAIM)


async def reboot(node: Node) -> None:
    await prepare(node)
    (node.directory / "effects/gpu-0").unlink()  # what a reboot does to side effects
    node.reboot()


async def damage(node: Node) -> None:
    """Without side effects: those are known from the record alone."""
    (node.directory / "plain").touch()
    node.effects = None
    node.start()
    await prepare(node)
    node.journal_file(1).write_bytes(b"{")


SCENARIOS: dict[str, tuple[Step, Step]] = {
    "prepare": (nothing, prepare),
    "unprepare": (prepare, unprepare),
    "restore": (reboot, prepare),
    "rebuild": (damage, prepare),
}


def made(node: Node) -> set[str]:
    """Side effects that are on the host."""
    return {path.name for path in (node.directory / "effects").iterdir()}


async def the_kubelet_asks_again(node: Node) -> None:
    answer = await node.manager.prepare(_CLAIM)
    assert answer.phase is Phase.DONE
    assert node.specs.exists_intact(_CLAIM.uid)
    assert await node.manager.prepare(_CLAIM) == answer
    assert made(node) == ({"gpu-0"} if node.effects else set())
    await node.manager.unprepare(_CLAIM)
    await node.reconciler.run_once()
    assert node.holds_nothing()


async def the_kubelet_gives_up(node: Node) -> None:
    await node.manager.unprepare(_CLAIM)
    await node.reconciler.run_once()
    assert node.holds_nothing()
    assert await node.manager.prepare(_OTHER)


async def nobody_calls_and_the_claim_is_gone(node: Node) -> None:
    node.delete(1)
    await node.reconciler.run_once()
    await node.clock.advance(_GRACE)
    await node.reconciler.run_once()
    assert node.holds_nothing()


async def nobody_calls_and_the_claim_is_there(node: Node) -> None:
    await node.reconciler.run_once()
    for entry in (await node.manager.recorded()).values():
        assert entry.phase is Phase.DONE
    assert await node.manager.prepare(_CLAIM)
    assert made(node) == ({"gpu-0"} if node.effects else set())


async def another_claim_asks_for_the_device(node: Node) -> None:
    held = node.cdi_file(1).exists() or node.journal_file(1).exists() or bool(made(node))
    try:
        await node.manager.prepare(_OTHER)
    except Conflict:
        assert held
    else:
        assert not held


SEQUELS: tuple[Step, ...] = (
    the_kubelet_asks_again,
    the_kubelet_gives_up,
    nobody_calls_and_the_claim_is_gone,
    nobody_calls_and_the_claim_is_there,
    another_claim_asks_for_the_device,
)


def start(directory: Path) -> Node:
    """A start of the plugin on what is on this disk."""
    node = Node(directory, ClaimSettings(driver=samples.DRIVER, pool=samples.POOL))
    if not (directory / "plain").exists():
        node.with_effects()
    for claim in (_CLAIM, _OTHER):
        node.api.put({**samples.claim(int(claim.name[-1]), samples.result("gpu-0"))})
    return node


def in_a_process(work: Callable[[], None]) -> tuple[int, str]:
    """Its wait status, and what it had to say when it failed."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException:
            os.write(writing, traceback.format_exc()[-4000:].encode())
            os._exit(1)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        said = pipe.read()
    return os.waitpid(child, 0)[1], said


def kill_before_line(number: int, report: Path) -> None:
    """Arm this process: SIGKILL before the n-th line of the modules under test, in whichever thread."""
    passed = 0

    def trace(frame: FrameType, event: str, _argument: Any) -> Any:
        nonlocal passed
        if frame.f_code.co_filename not in _FILES:
            return None
        if event == "line":
            passed += 1
            if passed == number:
                report.write_text(f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno} in {frame.f_code.co_name}")
                os.kill(os.getpid(), signal.SIGKILL)
        return trace

    threading.settrace(trace)
    sys.settrace(trace)


async def crash(scenario: str, directory: Path, number: int, report: Path) -> None:
    before, operation = SCENARIOS[scenario]
    node = start(directory)
    await before(node)
    node.start()  # fresh threads, so that the trace reaches them
    kill_before_line(number, report)
    await operation(node)
    sys.settrace(None)


def go_on(crashed: Path, copy: Path) -> None:
    """Every sequel on a copy of its own of what the crash left. Raises ExceptionGroup of what went wrong."""
    wrong: list[Exception] = []
    for sequel in SEQUELS:
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(crashed, copy)
        try:
            asyncio.run(sequel(start(copy)))
        except Exception as error:
            wrong.append(error)
    if wrong:
        raise ExceptionGroup("not healed", wrong)


def kill_at(scenario: str, number: int, work: Path) -> tuple[bool, str]:
    """Whether the operation was killed at its n-th line, and what then was not healed."""
    crashed, report = work / "crashed", work / "report"
    shutil.rmtree(crashed, ignore_errors=True)
    crashed.mkdir()
    status, said = in_a_process(lambda: asyncio.run(crash(scenario, crashed, number, report)))
    if status == 0:
        return False, ""
    assert os.WIFSIGNALED(status), said
    _, said = in_a_process(lambda: go_on(crashed, work / "copy"))
    return True, f"killed before {report.read_text()}: {said}" if said else ""


def main() -> None:
    scenario, work = sys.argv[1], Path(sys.argv[2])
    failures: list[str] = []
    for number in itertools.count(1):
        killed, failure = kill_at(scenario, number, work)
        if not killed:
            json.dump({"kills": number - 1, "failures": failures}, sys.stdout)
            return
        if failure:
            failures.append(failure)


if __name__ == "__main__":
    main()
