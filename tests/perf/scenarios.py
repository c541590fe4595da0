"""What `make bench` measures: the calls of a kubelet under the conditions of the charter's budgets.

Every scenario leaves the node as it found it: what it prepared is unprepared, what it created is deleted.
"""

from __future__ import annotations

import asyncio
import os
import time
from typing import TYPE_CHECKING, Any

from tests.support.fake_kubelet import prepare, unprepare
from tests.support.latency import Latencies

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from gpu_dra.model.claim import ClaimRef
    from tests.perf.claims import ClaimFactory
    from tests.support.fake_kubelet import Plugin

ROUNDS = 100
PAUSE = 0.02
"""Between claims, so that the API connection has been idle as it is on a real node."""


class Cycle:
    """Prepare, repeat and unprepare one claim after another on one device."""

    def __init__(self, plugin: Plugin, claims: ClaimFactory) -> None:
        self._plugin = plugin
        self._claims = claims

    async def run(self, label: str, *, device: str = "gpu-0", rounds: int = ROUNDS) -> list[Latencies]:
        """Three series: prepare, repeat, unprepare."""
        series: dict[str, list[float]] = {"prepare": [], "repeat": [], "unprepare": []}
        for _ in range(rounds):
            ref = await self._claims.create(device)
            await asyncio.sleep(PAUSE)
            series["prepare"].append(await timed(lambda ref=ref: succeed(prepare(self._plugin, ref))))
            series["repeat"].append(await timed(lambda ref=ref: succeed(prepare(self._plugin, ref))))
            series["unprepare"].append(await timed(lambda ref=ref: succeed(unprepare(self._plugin, ref))))
            await self._claims.delete(ref)
        return [Latencies(name=f"{step}, {label}", seconds=tuple(times)) for step, times in series.items()]


async def with_held(cycle: Cycle, plugin: Plugin, claims: ClaimFactory, *, held: int = 7) -> list[Latencies]:
    """The same while other claims hold the other devices."""
    refs = [await claims.create(f"gpu-{minor}") for minor in range(1, held + 1)]
    await succeed(prepare(plugin, *refs))
    result = await cycle.run(f"{held} other claims held")
    await succeed(unprepare(plugin, *refs))
    for ref in refs:
        await claims.delete(ref)
    return result


async def with_foreign_files(cycle: Cycle, cdi: Path, *, count: int = 100) -> list[Latencies]:
    """The same with CDI files of others in the directory."""
    text = '{"cdiVersion":"0.5.0","kind":"example.com/x","devices":[{"name":"d","containerEdits":{"env":["A=B"]}}]}'
    files = [cdi / f"example.com-x_{number}.json" for number in range(count)]
    for path in files:
        path.write_text(text)
    try:
        return await cycle.run(f"{count} foreign CDI files")
    finally:
        for path in files:
            path.unlink()


async def parallel(plugin: Plugin, claims: ClaimFactory, *, calls: int, rounds: int) -> Latencies:
    """`calls` calls at the same time; beyond the eight devices they use admin access, which may share one."""
    times: list[float] = []
    for _ in range(rounds):
        refs = [await claims.create(f"gpu-{n % 8}", admin=calls > 8) for n in range(calls)]
        times += await asyncio.gather(*(timed(lambda ref=ref: succeed(prepare(plugin, ref))) for ref in refs))
        await succeed(unprepare(plugin, *refs))
        for ref in refs:
            await claims.delete(ref)
    return Latencies(name=f"{calls} prepare calls at once, each", seconds=tuple(times))


async def one_call(plugin: Plugin, claims: ClaimFactory, *, rounds: int = 10) -> Latencies:
    """Eight claims in one call."""
    times = []
    for _ in range(rounds):
        refs = [await claims.create(f"gpu-{n}") for n in range(8)]
        times.append(await timed(lambda refs=refs: succeed(prepare(plugin, *refs))))
        await succeed(unprepare(plugin, *refs))
        for ref in refs:
            await claims.delete(ref)
    return Latencies(name="8 claims in one call", seconds=tuple(times))


async def burst(plugin: Plugin, claims: ClaimFactory, *, count: int = 100) -> Latencies:
    """Claims one after another with no pause; each is unprepared before the next."""
    refs = [await claims.create("gpu-0") for _ in range(count)]
    times = []
    for ref in refs:
        times.append(await timed(lambda ref=ref: succeed(prepare(plugin, ref))))
        await succeed(unprepare(plugin, ref))
    for ref in refs:
        await claims.delete(ref)
    return Latencies(name=f"burst of {count}, each prepare", seconds=tuple(times))


async def floors(
    plugin: Plugin, get_claim: Callable[[ClaimRef], Awaitable[object]], claims: ClaimFactory, disk: Path
) -> list[Latencies]:
    """What no driver can be faster than: an empty call, a GET of a claim, a 4 KiB write with fsync."""
    empty = [await timed(lambda: prepare(plugin)) for _ in range(ROUNDS)]
    ref = await claims.create("gpu-0")
    busy = [await timed(lambda: get_claim(ref)) for _ in range(ROUNDS)]
    idle = []
    for _ in range(ROUNDS):
        await asyncio.sleep(PAUSE)
        idle.append(await timed(lambda: get_claim(ref)))
    await claims.delete(ref)
    return [
        Latencies(name="floor: empty prepare call", seconds=tuple(empty)),
        Latencies(name="floor: GET of a claim", seconds=tuple(busy)),
        Latencies(name="floor: GET of a claim, connection idle 20 ms", seconds=tuple(idle)),
        Latencies(name="floor: write 4 KiB and fsync", seconds=tuple(_fsync(disk / "floor") for _ in range(ROUNDS))),
    ]


async def timed(work: Callable[[], Awaitable[object]]) -> float:
    """Seconds that `work` took."""
    started = time.perf_counter()
    await work()
    return time.perf_counter() - started


async def succeed(answers: Awaitable[dict[str, Any]]) -> None:
    """Await the answers of one call and fail loudly when a claim failed: a fast error is no measurement."""
    for uid, answer in (await answers).items():
        if answer.error:
            raise RuntimeError(f"claim {uid}: {answer.error}")


def _fsync(path: Path) -> float:
    started = time.perf_counter()
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.write(descriptor, bytes(4096))
    os.fsync(descriptor)
    os.close(descriptor)
    return time.perf_counter() - started
