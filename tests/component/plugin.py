"""The real entry point on a mocked host: the C library, a driver's trees, the API server fake over HTTP, a kubelet of our own."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import socket
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp

from gpu_dra.core.clock import SystemClock
from gpu_dra.kube.api import NODES, RESOURCE_SLICES
from gpu_dra.kube.fake import FakeKubeApi
from gpu_dra.kube.fake_server import FakeApiServer, kubeconfig
from hack.testbed import mock_nvml
from hack.testbed.cluster.host import state_of
from hack.testbed.driver_files import DriverPrograms
from hack.testbed.mock_host import HostTree, lay
from hack.testbed.mock_nvml import MockNvml
from hack.testbed.profiles import load_machine
from tests.perf.claims import ClaimFactory
from tests.support.fake_kubelet import FakeKubelet, Plugin, prepare, unprepare

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpu_dra.model.claim import ClaimRef

NODE = "node-a"


@dataclass
class Host:
    """A machine's trees, its mocked GPUs, and the directories of its kubelet; outlives the plugin's processes."""

    directory: Path
    tree: HostTree
    mock: MockNvml

    @classmethod
    def make(cls, directory: Path, profile: str = "h100x8") -> Host:
        """Lay it below `directory`."""
        built = mock_nvml.build(say=lambda _: None)
        machine = load_machine(profile, seed=NODE)
        programs = DriverPrograms(nvml_library=built.library, nvidia_smi=built.nvidia_smi, cdi_hook=None)
        tree = lay(machine, directory / "host", programs=programs)
        mock = MockNvml.create(state_of(tree), machine, built, host_tree=tree.nvidia_proc)
        host = cls(directory, tree, mock)
        host.boot_id.parent.mkdir(parents=True)
        host.boot_id.write_text("boot-1\n")
        for path in (host.registry, host.cdi):
            path.mkdir()
        return host

    @property
    def boot_id(self) -> Path:
        return self.tree.proc / "sys/kernel/random/boot_id"

    @property
    def registry(self) -> Path:
        return self.directory / "r"

    @property
    def cdi(self) -> Path:
        return self.directory / "cdi"

    @property
    def data(self) -> Path:
        return self.directory / "p" / "gpu.nvidia.com"

    def spec(self, ref: ClaimRef) -> Path:
        """The claim's CDI file."""
        return self.cdi / f"k8s.gpu.nvidia.com-claim_{ref.uid}.yaml"

    def record(self, ref: ClaimRef) -> Path:
        """The claim's journal file."""
        return self.data / "claims" / f"{ref.uid}.json"

    def is_empty(self) -> bool:
        """True when nothing is prepared."""
        return not list(self.cdi.iterdir()) and not list((self.data / "claims").iterdir())


@dataclass
class World:
    """One node and its cluster."""

    host: Host
    api: FakeKubeApi
    server: FakeApiServer
    kubelet: FakeKubelet
    claims: ClaimFactory
    kubeconfig: Path
    processes: list[asyncio.subprocess.Process] = field(default_factory=list)

    def command(self, *flags: str) -> list[str]:
        """The plugin's command line."""
        host = self.host
        return [
            *(sys.executable, "-m", "gpu_dra", "node", "--node-name", NODE),
            *("--kubeconfig", str(self.kubeconfig)),
            *("--nvidia-driver-root", str(host.tree.driver_root)),
            *("--proc-root", str(host.tree.proc)),
            *("--sys-root", str(host.tree.sys)),
            *("--dev-root", str(host.tree.dev)),
            *("--cdi-root", str(host.cdi)),
            *("--kubelet-plugins-directory-path", str(host.data.parent)),
            *("--kubelet-registrar-directory-path", str(host.registry)),
            *flags,
        ]

    async def start(self, *flags: str) -> asyncio.subprocess.Process:
        """Start a plugin process; its log goes to `log`."""
        with self.log.open("ab") as log:
            process = await asyncio.create_subprocess_exec(*self.command(*flags), stdout=log, stderr=log)
        self.processes.append(process)
        return process

    async def registered(self, *flags: str) -> Plugin:
        """Start one and register it."""
        await self.start(*flags)
        return await self.kubelet.register()

    async def kill(self) -> None:
        """SIGKILL to the newest process."""
        process = self.processes.pop()
        process.kill()
        await process.wait()
        await self.kubelet.close()

    async def ended(self, *, within: float = 30.0) -> int:
        """Exit status of the newest process, once it has ended."""
        async with asyncio.timeout(within):
            return await self.processes[-1].wait()

    @property
    def log(self) -> Path:
        return self.host.directory / "log"

    async def slices(self) -> list[dict[str, Any]]:
        """What is stored."""
        return list((await self.api.list(RESOURCE_SLICES)).items)

    async def devices(self) -> dict[str, dict[str, Any]]:
        """Published devices by name."""
        return {device["name"]: device for piece in await self.slices() for device in piece["spec"].get("devices", ())}

    async def until(self, what: str, condition: Callable[[], Any], *, within: float = 15.0) -> Any:
        """Poll a condition (a coroutine function) until it is true; on time-out fail with the log."""
        try:
            async with asyncio.timeout(within):
                while not (result := await condition()):  # noqa: ASYNC110 - another process makes it true
                    await asyncio.sleep(0.02)
        except TimeoutError:
            raise AssertionError(f"{what} did not happen within {within:g} s\n{self.log.read_text()}") from None
        return result

    async def close(self) -> None:
        """End everything."""
        await self.kubelet.close()
        for process in self.processes:
            if process.returncode is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
                await process.wait()
        await self.server.stop()
        shutil.rmtree(self.host.directory, ignore_errors=True)


async def make_world(directory: Path, profile: str = "h100x8") -> World:
    """A cluster with one node object, a host, and no plugin yet."""
    api = FakeKubeApi(clock=SystemClock())
    await api.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}})
    server = FakeApiServer(api)
    await server.start()
    config = directory / "kubeconfig"
    config.write_text(json.dumps(kubeconfig(server.url)))
    host = await asyncio.to_thread(Host.make, directory, profile)
    return World(
        host=host,
        api=api,
        server=server,
        kubelet=FakeKubelet(host.registry),
        claims=ClaimFactory(api, node=NODE, namespace="default"),
        kubeconfig=config,
    )


def free_endpoint() -> str:
    """An address of this host on which nothing listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


async def get(endpoint: str, path: str) -> tuple[int, str]:
    """HTTP status and body."""
    async with aiohttp.ClientSession() as session, session.get(f"http://{endpoint}{path}") as response:
        return response.status, await response.text()


async def prepared(plugin: Plugin, ref: ClaimRef) -> list[str]:
    """Prepare one claim; its device names. Fails with the reason."""
    answer = (await prepare(plugin, ref))[ref.uid]
    assert not answer.error, answer.error
    return [device.device_name for device in answer.devices]


async def refused(plugin: Plugin, ref: ClaimRef) -> str:
    """Prepare one claim that cannot be; the reason."""
    answer = (await prepare(plugin, ref))[ref.uid]
    assert answer.error
    assert not answer.devices
    return str(answer.error)


async def unprepared(plugin: Plugin, ref: ClaimRef) -> None:
    """Unprepare one claim. Fails with the reason."""
    answer = (await unprepare(plugin, ref))[ref.uid]
    assert not answer.error, answer.error
