"""Run a piece of work against the cluster's API and give its connections back."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

from gpu_dra.core.clock import SystemClock
from gpu_dra.kube.http import HttpKubeApi
from gpu_dra.kube.kubeconfig import server_for_daemon

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from gpu_dra.kube.api import KubeApi


def with_api(kubeconfig: Path | None, work: Callable[[KubeApi], Awaitable[None]]) -> None:
    """`work(api)` with the kubeconfig's server, or the one of the pod we run in. Raises GpuDraError."""

    async def run() -> None:
        api = HttpKubeApi(server_for_daemon(kubeconfig, os.environ), clock=SystemClock())
        try:
            await work(api)
        finally:
            await api.close()

    asyncio.run(run())
