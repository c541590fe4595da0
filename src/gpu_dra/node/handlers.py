"""Register services with grpc without generated service code, which would tie us to one grpcio version (python-stack trap)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import grpc

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from google.protobuf.message import Message


def unary(
    method: Callable[[Any, grpc.aio.ServicerContext[Any, Any]], Awaitable[Message]], request: type[Message]
) -> grpc.RpcMethodHandler[Any, Any]:
    """One request, one answer."""
    return grpc.unary_unary_rpc_method_handler(method, request_deserializer=request.FromString, response_serializer=_serialize)


def stream(
    method: Callable[[Any, grpc.aio.ServicerContext[Any, Any]], Any], request: type[Message]
) -> grpc.RpcMethodHandler[Any, Any]:
    """One request, a stream of answers."""
    return grpc.unary_stream_rpc_method_handler(method, request_deserializer=request.FromString, response_serializer=_serialize)


def service(name: str, methods: dict[str, grpc.RpcMethodHandler[Any, Any]]) -> grpc.GenericRpcHandler:
    """A service under its full name, e.g. `pluginregistration.Registration`."""
    return grpc.method_handlers_generic_handler(name, methods)


def _serialize(message: Message) -> bytes:
    return message.SerializeToString()
