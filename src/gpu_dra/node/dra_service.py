"""The kubelet's DRAPlugin service, v1 and v1beta1, over the claims room.

Contract: k8s.io/kubelet `pkg/apis/dra`. Every claim asked for gets an entry, its failure is a text in that entry and never the status of
the call, and claims of one call do not wait for each other. An empty request answers at once, because probes send it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

from gpu_dra.core.errors import GpuDraError
from gpu_dra.core.logs import bind
from gpu_dra.model.claim import ClaimRef
from gpu_dra.node import handlers
from gpu_dra.node.generated.kubelet import dra_v1_pb2, dra_v1beta1_pb2

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    import grpc

    from gpu_dra.model.prepared import PreparedClaim, PreparedDevice
    from gpu_dra.node.metrics import NodeMetrics
    from gpu_dra.node.ports import Claims

log = logging.getLogger(__name__)

Answer = TypeVar("Answer")

SUPPORTED_VERSIONS = ("v1.DRAPlugin", "v1beta1.DRAPlugin")
"""What we tell the kubelet, newest first: it takes the first it knows."""


class DraService:
    """Both versions of the service; the messages differ in the share id alone, which v1beta1 lacks."""

    def __init__(self, claims: Claims, metrics: NodeMetrics) -> None:
        self._claims = claims
        self._metrics = metrics

    def handlers(self) -> list[grpc.GenericRpcHandler]:
        """What to add to the server."""
        return [self._version("v1", dra_v1_pb2), self._version("v1beta1", dra_v1beta1_pb2)]

    def _version(self, version: str, messages: ModuleType) -> grpc.GenericRpcHandler:
        async def prepare(request: Any, _context: object) -> Any:  # noqa: ANN401 - a message of either version
            with self._metered("prepare", request):
                answers = await _each(request.claims, self._prepare)
            response = messages.NodePrepareResourcesResponse()
            for uid, answer in answers:
                entry = response.claims[uid]
                if isinstance(answer, str):
                    entry.error = answer
                else:
                    entry.devices.extend(_device(messages, device) for device in answer.devices)
            return response

        async def unprepare(request: Any, _context: object) -> Any:  # noqa: ANN401 - a message of either version
            with self._metered("unprepare", request):
                answers = await _each(request.claims, self._unprepare)
            response = messages.NodeUnprepareResourcesResponse()
            for uid, answer in answers:
                entry = response.claims[uid]
                if answer is not None:
                    entry.error = answer
            return response

        return handlers.service(
            f"k8s.io.kubelet.pkg.apis.dra.{version}.DRAPlugin",
            {
                "NodePrepareResources": handlers.unary(prepare, messages.NodePrepareResourcesRequest),
                "NodeUnprepareResources": handlers.unary(unprepare, messages.NodeUnprepareResourcesRequest),
            },
        )

    def _metered(self, operation: str, request: Any) -> contextlib.AbstractContextManager[None]:  # noqa: ANN401 - of either version
        """A call without claims is a probe's and no request."""
        return self._metrics.request(operation) if request.claims else contextlib.nullcontext()

    async def _prepare(self, ref: ClaimRef) -> PreparedClaim | str:
        try:
            return await self._claims.prepare(ref)
        except GpuDraError as error:
            self._metrics.failed("prepare", error)
            log.warning("claim not prepared", extra={"error": str(error), "kind": type(error).__name__})
            return str(error)
        except Exception as error:
            self._metrics.failed("prepare", error)
            log.exception("claim not prepared, this is a defect of gpu-dra")
            return f"gpu-dra failed on claim {ref}: {error!r}; the plugin's log has the details"

    async def _unprepare(self, ref: ClaimRef) -> str | None:
        try:
            await self._claims.unprepare(ref)
        except GpuDraError as error:
            self._metrics.failed("unprepare", error)
            log.warning("claim not unprepared", extra={"error": str(error), "kind": type(error).__name__})
            return str(error)
        except Exception as error:
            self._metrics.failed("unprepare", error)
            log.exception("claim not unprepared, this is a defect of gpu-dra")
            return f"gpu-dra failed on claim {ref}: {error!r}; the plugin's log has the details"
        return None


async def _each(claims: Iterable[Any], work: Callable[[ClaimRef], Awaitable[Answer]]) -> list[tuple[str, Answer]]:
    async def one(claim: Any) -> tuple[str, Answer]:  # noqa: ANN401 - a Claim message of either version
        with bind(claim=f"{claim.namespace}/{claim.name}", claim_uid=claim.uid):
            return claim.uid, await work(ClaimRef(namespace=claim.namespace, name=claim.name, uid=claim.uid))

    found = list({claim.uid: claim for claim in claims}.values())  # asked for twice is answered once
    if len(found) == 1:
        return [await one(found[0])]
    return await asyncio.gather(*map(one, found))


def _device(messages: ModuleType, device: PreparedDevice) -> Any:  # noqa: ANN401 - a Device message of either version
    message = messages.Device(
        request_names=[device.request],
        pool_name=device.pool,
        device_name=device.device,
        cdi_device_ids=device.cdi_ids,
    )
    if device.share_id is not None and messages is dra_v1_pb2:
        message.share_id = device.share_id
    return message
