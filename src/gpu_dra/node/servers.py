"""The two gRPC servers on unix sockets: started DRA first, stopped registration first.

The order matters: the kubelet may call as soon as it has our answer to GetInfo, and removing the registration socket is how it learns
that we leave (source: dynamic-resource-allocation kubeletplugin).
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import grpc

from gpu_dra.core.errors import Broken

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable
    from pathlib import Path

OPTIONS = [("grpc.so_reuseport", 0), ("grpc.max_receive_message_length", 16 << 20)]


@contextlib.asynccontextmanager
async def serving(path: Path, handlers: Iterable[grpc.GenericRpcHandler], *, grace: float) -> AsyncIterator[grpc.aio.Server]:
    """Serve on a unix socket readable by root alone; on leaving, calls in flight get `grace` seconds to finish."""
    server = grpc.aio.server(options=OPTIONS)
    server.add_generic_rpc_handlers(tuple(handlers))
    try:
        server.add_insecure_port(f"unix:{path}")
    except RuntimeError as error:
        raise Broken(f"cannot listen on {path}; is its directory there, and may this user write to it?") from error
    # Before anybody is answered. A umask would be the whole process's: other threads make files, too.
    path.chmod(0o600)  # noqa: ASYNC240 - one call on a local file
    await server.start()
    try:
        yield server
    finally:
        await server.stop(grace)
        _unlink(path)


def _unlink(path: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
