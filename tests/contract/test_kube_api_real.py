"""The client keeps the contract against a real kube-apiserver with etcd, so that the fake is held to its behaviour and not to our reading.

Needs an administrator's kubeconfig of a Kubernetes 1.34 or later in GPU_DRA_TEST_KUBECONFIG.
"""

import os
from contextlib import AsyncExitStack, suppress
from pathlib import Path

import pytest

from gpu_dra.core.clock import SystemClock
from gpu_dra.kube.api import RESOURCE_CLAIMS, RESOURCE_SLICES
from gpu_dra.kube.errors import NotFound
from gpu_dra.kube.http import HttpKubeApi
from gpu_dra.kube.kubeconfig import load_kubeconfig
from tests.contract.kube_api_contract import DRIVER, NAMESPACE, KubeApiContract

pytestmark = pytest.mark.real_apiserver


class TestHttpKubeApiOnARealServer(KubeApiContract):
    @pytest.fixture
    async def api(self):
        kubeconfig = os.environ.get("GPU_DRA_TEST_KUBECONFIG")
        if not kubeconfig:
            pytest.fail("GPU_DRA_TEST_KUBECONFIG names no kubeconfig; deselect these tests with -m 'not real_apiserver'")
        async with AsyncExitStack() as held:
            api = HttpKubeApi(load_kubeconfig(Path(kubeconfig)), clock=SystemClock())
            held.push_async_callback(api.close)
            held.push_async_callback(_tidy, api)
            yield api


async def _tidy(api):
    for item in (await api.list(RESOURCE_SLICES, field_selector={"spec.driver": DRIVER})).items:
        with suppress(NotFound):
            await api.delete(RESOURCE_SLICES, item["metadata"]["name"])
    for item in (await api.list(RESOURCE_CLAIMS, namespace=NAMESPACE)).items:
        if item["spec"]["devices"]["requests"][0]["exactly"]["deviceClassName"] == "gpu.example.com":
            with suppress(NotFound):
                await api.delete(RESOURCE_CLAIMS, item["metadata"]["name"], namespace=NAMESPACE)
