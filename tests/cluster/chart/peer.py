"""Another DRA driver of our name, as the kubelet sees one: a registration socket that answers. Runs inside a node until it is stopped."""

import asyncio
from pathlib import Path

from gpu_dra.node.registration import RegistrationService
from gpu_dra.node.servers import serving

SOCKET = Path("/var/lib/kubelet/plugins_registry/gpu.nvidia.com-reg.sock")


async def main() -> None:
    service = RegistrationService(
        driver="gpu.nvidia.com",
        endpoint=Path("/var/lib/kubelet/plugins/other/dra.sock"),
        versions=("v1.DRAPlugin",),
        on_registered=lambda: None,
    )
    async with serving(SOCKET, service.handlers(), grace=0):
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
