"""`make bench`: measure against the budgets of the charter; print a table and write `build/bench.json`.

Figures, not verdicts: a budget that is missed is shown, and the exit status says only whether the bench could run.
"""

from __future__ import annotations

import asyncio
import compileall
import datetime as dt
import json
import socket
import statistics
import sys
import sysconfig
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpu_dra.kube.api import RESOURCE_CLAIMS, RESOURCE_SLICES
from tests.perf import scenarios
from tests.perf.claims import ClaimFactory
from tests.perf.image import detector_figures, image_figures
from tests.perf.process import ProcessFigures
from tests.perf.rig import NAMESPACE, NODE, machine_description, rig, running, started, until
from tests.perf.scenarios import Cycle
from tests.support.fake_kubelet import FakeKubelet
from tests.support.latency import Latencies, table

if TYPE_CHECKING:
    from tests.perf.rig import Rig
    from tests.support.fake_kubelet import Plugin

IDLE_SECONDS = 30
STARTS = 5


def main() -> int:
    """Run everything, print and write the report."""
    for folder in ("src", sysconfig.get_path("purelib")):  # as in the image: what is compiled at start costs memory and time
        compileall.compile_dir(folder, quiet=2, optimize=2)
    report = asyncio.run(_measure())
    Path("build").mkdir(exist_ok=True)
    Path("build/bench.json").write_text(json.dumps(report, indent=2) + "\n")
    print(f"{report['machine']}, {report['date']}\n")
    print(table(report["latencies"]), end="\n\n")
    print(table([{"figure": name, "value": value} for name, value in report["figures"].items()]))
    return 0


async def _measure() -> dict[str, Any]:
    figures: dict[str, Any] = {}
    async with rig() as the_rig:
        claims = ClaimFactory(the_rig.api, node=NODE, namespace=NAMESPACE)
        async with running(the_rig) as (plugin, process):
            latencies = await _latencies(the_rig, plugin, process, claims, figures)
            figures.update(await _repairs(the_rig))
            figures.update(await _idle(the_rig, process))
        figures.update(await _starts(the_rig))
    with tempfile.TemporaryDirectory() as bus:
        figures.update(detector_figures(ProcessFigures, Path(bus)))
    figures.update(image_figures())
    return {
        "date": dt.datetime.now(tz=dt.UTC).date().isoformat(),
        "machine": machine_description(),
        "latencies": [series.row() for series in latencies],
        "figures": figures,
    }


async def _latencies(
    rig: Rig, plugin: Plugin, process: ProcessFigures, claims: ClaimFactory, figures: dict[str, Any]
) -> list[Latencies]:
    def get(ref: Any) -> Any:
        return rig.api.get(RESOURCE_CLAIMS, ref.name, namespace=ref.namespace)

    cycle = Cycle(plugin, claims)
    series = await scenarios.floors(plugin, get, claims, rig.directory)
    await cycle.run("warm-up", rounds=10)
    await asyncio.sleep(10)
    figures.update(
        {f"memory 10 s after the first claims, {kind}, MiB": round(value, 1) for kind, value in process.memory_mib().items()}
    )
    before, cpu = await rig.metrics(), process.cpu_seconds()
    series += await cycle.run("nothing held")
    figures["CPU per prepare + repeat + unprepare, ms"] = round((process.cpu_seconds() - cpu) / scenarios.ROUNDS * 1000, 2)
    figures.update(_phases(before, await rig.metrics()))
    series += await scenarios.with_held(cycle, plugin, claims)
    series += await scenarios.with_foreign_files(cycle, rig.cdi)
    series.append(await scenarios.parallel(plugin, claims, calls=8, rounds=10))
    series.append(await scenarios.parallel(plugin, claims, calls=64, rounds=3))
    series.append(await scenarios.one_call(plugin, claims))
    series.append(await scenarios.burst(plugin, claims))
    return series


def _phases(before: dict[str, float], after: dict[str, float]) -> dict[str, float]:
    """Mean milliseconds of each phase of the prepares between two readings."""
    found = {}
    prefix = "gpu_dra_prepare_phase_seconds_sum"
    for name, value in after.items():
        if name.startswith(prefix):
            labels = name.removeprefix(prefix)
            count = after[f"gpu_dra_prepare_phase_seconds_count{labels}"] - before.get(
                f"gpu_dra_prepare_phase_seconds_count{labels}", 0
            )
            if count:
                found[f"phase {labels}, mean ms"] = round((value - before.get(name, 0)) / count * 1000, 3)
    return found


async def _repairs(rig: Rig) -> dict[str, Any]:
    """How fast slices follow what happens to them and to the GPUs."""
    deleted = []
    for _ in range(3):
        await asyncio.sleep(2.5)  # the publisher's budget is full again
        for piece in await rig.slices():
            await rig.api.delete(RESOURCE_SLICES, piece["metadata"]["name"])
        deleted.append(await until(rig.slices))
    changed = []

    async def tainted() -> bool:
        return any(device.get("taints") for piece in await rig.slices() for device in piece["spec"]["devices"])

    async def clean() -> bool:
        return not await tainted()

    for _ in range(3):
        await asyncio.sleep(2.5)
        rig.mock.lose(7)
        changed.append(await until(tainted))
        rig.mock.restore(7)
        await until(clean)
    return {
        "own slice deleted → back, s (median of 3)": round(statistics.median(deleted), 3),
        "one GPU lost → slice updated, s (median of 3)": round(statistics.median(changed), 3),
    }


async def _idle(rig: Rig, process: ProcessFigures) -> dict[str, Any]:
    """Memory, CPU and API writes of a process that has nothing to do."""
    await asyncio.sleep(5)
    versions = [piece["metadata"]["resourceVersion"] for piece in await rig.slices()]
    cpu, began = process.cpu_seconds(), time.monotonic()
    await asyncio.sleep(IDLE_SECONDS)
    share = (process.cpu_seconds() - cpu) / (time.monotonic() - began)
    now = [piece["metadata"]["resourceVersion"] for piece in await rig.slices()]
    memory = process.memory_mib()
    return {
        "RSS after all of the above, MiB": round(memory["rss"], 1),
        "idle CPU, % of a core": round(share * 100, 3),
        f"slice writes in {IDLE_SECONDS} idle s": sum(old != new for old, new in zip(versions, now, strict=True)),
    }


async def _starts(rig: Rig) -> dict[str, Any]:
    """From exec to both sockets, and to the first slice stored, with no slice there before."""
    sockets, slices = [], []
    for _ in range(STARTS):
        for piece in await rig.slices():
            await rig.api.delete(RESOURCE_SLICES, piece["metadata"]["name"])
        began = time.perf_counter()
        with started(rig):
            await until(lambda: _accepts(rig.registry / "gpu.nvidia.com-reg.sock"))
            sockets.append(time.perf_counter() - began)
            kubelet = FakeKubelet(rig.registry)
            await kubelet.register()
            await until(rig.slices)
            slices.append(time.perf_counter() - began)
            await kubelet.close()
    return {
        f"start → sockets accept, s (median of {STARTS})": round(statistics.median(sockets), 3),
        f"start → first slice stored, s (median of {STARTS})": round(statistics.median(slices), 3),
    }


async def _accepts(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            return False
    return True


if __name__ == "__main__":
    sys.exit(main())
