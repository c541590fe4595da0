"""The API fake can be started as a program of its own, for component tests and trials."""

import asyncio
import sys
from pathlib import Path

import pytest

from gpu_dra.core.clock import SystemClock
from gpu_dra.kube.api import NODES
from gpu_dra.kube.http import HttpKubeApi
from gpu_dra.kube.kubeconfig import load_kubeconfig


@pytest.fixture
async def kubeconfig(tmp_path):
    path = tmp_path / "kubeconfig"
    program = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "gpu_dra.kube.fake_server", "--kubeconfig-out", path, cwd=Path(__file__).parents[3] / "src"
    )
    async with asyncio.timeout(20):
        while True:
            if path.exists():
                break
            await asyncio.sleep(0.01)
    yield path
    program.terminate()
    await program.wait()


async def test_the_program_writes_a_kubeconfig_that_leads_to_it(kubeconfig):
    api = HttpKubeApi(load_kubeconfig(kubeconfig), clock=SystemClock())
    await api.create(NODES, {"metadata": {"name": "a"}})
    names = [item["metadata"]["name"] for item in (await api.list(NODES)).items]
    await api.close()
    assert names == ["a"]
