"""The kubelet's plugin registration service.

Contract: k8s.io/kubelet `pkg/apis/pluginregistration/v1`. GetInfo has one second, so it answers from memory. The kubelet deletes this
node's slices when it starts, hence a confirmed registration is also the moment to publish again.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpu_dra.node import handlers
from gpu_dra.node.generated.kubelet import registration_v1_pb2 as messages

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import grpc

log = logging.getLogger(__name__)


@dataclass(slots=True)
class RegistrationState:
    """Whether we can be asked, and what the kubelet last said."""

    served: bool = False
    """The registration socket is open."""
    registered: bool = False
    reason: str = "the kubelet has not asked for this plugin yet; is it running and does it watch the registrar directory?"


class RegistrationService:
    """Answers who we are and remembers whether the kubelet took us."""

    def __init__(self, *, driver: str, endpoint: Path, versions: tuple[str, ...], on_registered: Callable[[], None]) -> None:
        self.state = RegistrationState()
        self.taken = asyncio.Event()
        """Set once the kubelet has taken us for the first time."""
        self._on_registered = on_registered
        self._info = messages.PluginInfo(type="DRAPlugin", name=driver, endpoint=str(endpoint), supported_versions=versions)

    def handlers(self) -> list[grpc.GenericRpcHandler]:
        """What to add to the server."""
        return [
            handlers.service(
                "pluginregistration.Registration",
                {
                    "GetInfo": handlers.unary(self._get_info, messages.InfoRequest),
                    "NotifyRegistrationStatus": handlers.unary(self._notify, messages.RegistrationStatus),
                },
            )
        ]

    async def _get_info(self, _request: object, _context: object) -> messages.PluginInfo:
        return self._info

    async def _notify(self, status: messages.RegistrationStatus, _context: object) -> messages.RegistrationStatusResponse:
        if status.plugin_registered:
            self.state.registered, self.state.reason = True, ""
            self.taken.set()
            log.info("kubelet registered the plugin")
            self._on_registered()
        else:
            self.state.registered, self.state.reason = False, f"the kubelet refused the plugin: {status.error}"
            log.error("kubelet refused the plugin", extra={"error": status.error})
        return messages.RegistrationStatusResponse()
