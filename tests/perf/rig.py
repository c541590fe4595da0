"""What the bench runs on: a real API server, the real entry point on a mocked 8 × H100, and a kubelet of our own.

The lab's node gives the Node object that owns the slices; the plugin under test runs on this machine itself, on disk and not on tmpfs.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import aiohttp

from gpu_dra.core.clock import SystemClock
from gpu_dra.kube.api import RESOURCE_SLICES
from gpu_dra.kube.http import HttpKubeApi
from gpu_dra.kube.kubeconfig import load_kubeconfig
from hack.testbed import driver, mock_nvml
from hack.testbed.cluster.host import state_of
from hack.testbed.cluster.lab import Lab
from hack.testbed.cluster.spec import NodeSpec, Wishes
from hack.testbed.driver_files import DriverPrograms
from hack.testbed.mock_host import lay
from hack.testbed.mock_nvml import MockNvml
from hack.testbed.profiles import load_machine
from tests.perf.process import ProcessFigures
from tests.support.fake_kubelet import FakeKubelet

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

    from gpu_dra.kube.api import Object
    from hack.testbed.mock_host import HostTree
    from tests.support.fake_kubelet import Plugin

NODE = "bench"
NAMESPACE = "bench"
HTTP = "127.0.0.1:18099"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rig:
    """Everything a scenario may touch."""

    lab: Lab
    api: HttpKubeApi
    directory: Path
    tree: HostTree
    mock: MockNvml

    @property
    def cdi(self) -> Path:
        """The CDI directory of the plugin."""
        return self.directory / "cdi"

    @property
    def registry(self) -> Path:
        """Where the plugin registers."""
        return self.directory / "registry"

    def command(self) -> list[str]:
        """The plugin as an image starts it: without docstrings and asserts, from precompiled bytecode."""
        return [
            sys.executable,
            *("-OO", "-m", "gpu_dra", "node"),
            *("--node-name", NODE),
            *("--kubeconfig", str(self.lab.kubeconfig)),
            *("--nvidia-driver-root", str(self.tree.driver_root)),
            *("--proc-root", str(self.directory / "proc")),
            *("--sys-root", str(self.tree.sys)),
            *("--dev-root", str(self.tree.dev)),
            *("--cdi-root", str(self.cdi)),
            *("--kubelet-plugins-directory-path", str(self.directory / "plugins")),
            *("--kubelet-registrar-directory-path", str(self.registry)),
            *("--http-endpoint", HTTP),
        ]

    async def slices(self) -> list[Object]:
        """The stored slices of the node."""
        return list((await self.api.list(RESOURCE_SLICES, field_selector={"spec.nodeName": NODE})).items)

    async def metrics(self) -> dict[str, float]:
        """The plugin's own numbers, by sample name with labels."""
        async with aiohttp.ClientSession() as session, session.get(f"http://{HTTP}/metrics") as response:
            lines = (await response.text()).splitlines()
        return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if not line.startswith("#"))}


@contextlib.asynccontextmanager
async def rig() -> AsyncIterator[Rig]:
    """Bring the rig up and take it down."""
    lab = Lab.up(Wishes(name="bench", nodes=(NodeSpec(name=NODE),)))
    directory = Path(tempfile.mkdtemp(prefix="gpu-dra-bench-", dir="/var/tmp"))
    api = HttpKubeApi(load_kubeconfig(lab.kubeconfig), clock=SystemClock())
    try:
        driver.install(lab)
        lab.kubectl("apply", "-f", "-", stdin=_NAMESPACE)
        built = mock_nvml.build()
        machine = load_machine("h100x8", seed="bench")
        programs = DriverPrograms(nvml_library=built.library, nvidia_smi=built.nvidia_smi, cdi_hook=None)
        tree = lay(machine, directory / "host", programs=programs)
        mock = MockNvml.create(state_of(tree), machine, built, host_tree=tree.nvidia_proc)
        _lay_proc(directory / "proc", tree)
        for name in ("cdi", "registry", "plugins"):
            (directory / name).mkdir()
        yield Rig(lab=lab, api=api, directory=directory, tree=tree, mock=mock)
    finally:
        await api.close()
        shutil.rmtree(directory, ignore_errors=True)
        lab.down()


@contextlib.asynccontextmanager
async def running(rig: Rig) -> AsyncIterator[tuple[Plugin, ProcessFigures]]:
    """Start the plugin, register it, wait for its slices; stop it at the end."""
    with started(rig) as process:
        kubelet = FakeKubelet(rig.registry)
        try:
            plugin = await kubelet.register()
            await until(rig.slices)
            yield plugin, ProcessFigures(process.pid)
        finally:
            await kubelet.close()


@contextlib.contextmanager
def started(rig: Rig) -> Iterator[subprocess.Popen[bytes]]:
    """The plugin's process; its log goes to a file in the rig's folder."""
    with (rig.directory / "plugin.log").open("ab") as log:
        process = subprocess.Popen(rig.command(), stdout=log, stderr=log)
        try:
            yield process
        finally:
            process.terminate()
            process.wait(timeout=30)


async def until(condition: Callable[[], Awaitable[object]], *, within: float = 30.0, every: float = 0.002) -> float:
    """Seconds until `condition` gives something true; polled, since it asks another process."""
    started_at = time.perf_counter()
    async with asyncio.timeout(within):
        while not await condition():  # noqa: ASYNC110 - polled, since it asks another process
            await asyncio.sleep(every)
    return time.perf_counter() - started_at


def _lay_proc(proc: Path, tree: HostTree) -> None:
    """The mocked `/proc` beside this machine's boot id, which the journal needs."""
    shutil.copytree(tree.proc, proc, symlinks=True)
    boot_id = proc / "sys/kernel/random/boot_id"
    boot_id.parent.mkdir(parents=True)
    boot_id.write_text(Path("/proc/sys/kernel/random/boot_id").read_text())


def machine_description() -> str:
    """What the figures were measured on."""
    model = next(
        line.partition(":")[2].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")
    )
    return f"{os.cpu_count()} × {model}, {os.uname().sysname} {os.uname().release}, Python {sys.version.split()[0]}"


_NAMESPACE = """
apiVersion: v1
kind: Namespace
metadata:
  name: bench
  labels: {resource.kubernetes.io/admin-access: "true"}
"""
