"""Ask the container runtime itself which version it is and whether it injects CDI devices.

The one that owns the socket answers with the configuration it runs with; files may say something else, and a `containerd` on the PATH may
be another one. Source: CRI `runtime.v1`, `Status` with `verbose`; what `info["config"]` holds is containerd's own (`cri.Config`).
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import grpc

from gpu_dra.lifecycle.generated.cri import runtime_v1_pb2

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

SOCKETS: Final = (
    "run/containerd/containerd.sock",
    "run/crio/crio.sock",
    "run/k3s/containerd/containerd.sock",
    "run/k0s/containerd.sock",
    "var/snap/microk8s/common/run/containerd.sock",
)
"""Where distributions have it, below the host's root."""
SECONDS: Final = 5.0
_CDI_ALWAYS: Final = {"cri-o": (1, 28), "containerd": (2, 4)}
"""Runtimes that have no switch for it, and since when. They still read nothing where the list of directories is empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeFacts:
    """The runtime of a node."""

    name: str = ""
    version: str = ""
    cdi: bool | None = None
    """None where it does not say."""
    directories: tuple[str, ...] = ()
    """From which it reads CDI files."""
    trouble: str = ""
    """Why it could not be asked."""


async def ask_runtime(root: Path) -> RuntimeFacts:
    """The runtime whose socket is below the host's root, as we see it. Raises nothing."""
    found = await asyncio.to_thread(_sockets, root)
    if not found:
        return RuntimeFacts(trouble=f"no container runtime's socket is below {root} ({', '.join(SOCKETS)})")
    try:
        return await _ask(found[0])
    except grpc.aio.AioRpcError as error:
        return RuntimeFacts(trouble=f"{found[0]} does not answer: {error.details()}")


def _sockets(root: Path) -> list[Path]:
    return [path for name in SOCKETS if (path := root / name).is_socket()]


async def _ask(socket: Path) -> RuntimeFacts:
    async with grpc.aio.insecure_channel(f"unix:{socket}") as channel:
        version = await _call(channel, "Version", runtime_v1_pb2.VersionRequest(), runtime_v1_pb2.VersionResponse)
        status = await _call(channel, "Status", runtime_v1_pb2.StatusRequest(verbose=True), runtime_v1_pb2.StatusResponse)
    return judge(name=version.runtime_name, version=version.runtime_version, config=status.info.get("config", ""))


async def _call(channel: grpc.aio.Channel, method: str, request: Any, answer: Any) -> Any:  # noqa: ANN401 - generated messages
    call = channel.unary_unary(
        f"/runtime.v1.RuntimeService/{method}",
        request_serializer=type(request).SerializeToString,
        response_deserializer=answer.FromString,
    )
    return await call(request, timeout=SECONDS)


def judge(*, name: str, version: str, config: str) -> RuntimeFacts:
    """What name, version and effective configuration say of CDI."""
    since = _CDI_ALWAYS.get(name)
    numbers = [int(part) for part in version.removeprefix("v").split(".")[:2] if part.isdecimal()]
    always = since is not None and tuple(numbers) >= since
    try:
        told: Any = json.loads(config) if config else {}
    except ValueError:
        told = {}
    told = told if isinstance(told, dict) else {}
    directories: Sequence[str] | None = told.get("cdiSpecDirs")
    cdi = directories != [] if always else told.get("enableCDI")
    return RuntimeFacts(
        name=name or "the container runtime",
        version=version,
        cdi=cdi if isinstance(cdi, bool) else None,
        directories=tuple(map(str, directories or ())),
    )
