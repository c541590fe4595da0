"""`KubeApi` for a real API server: verbs, objects and lists over `kube.transport`.

Bodies are plain dicts, so that fields of a newer server survive a read and a write. Knows nothing of sockets and credentials;
`kube.watch` knows how to go on when a watch request ends.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from gpu_dra.kube.api import ObjectList, ServerVersion, WatchEvent, WatchKind
from gpu_dra.kube.http_errors import from_answer, read_error_event
from gpu_dra.kube.rest import VERSION, Call, Verb, selector_query
from gpu_dra.kube.transport import Transport

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

    from gpu_dra.core.clock import Clock
    from gpu_dra.kube.api import Object, Resource
    from gpu_dra.kube.auth import ServerConfig

SILENCE_AFTER_TIMEOUT = 15
"""Seconds a watch may stay open past the time at which the server promised to end it."""


class HttpKubeApi:
    """The API over HTTP. Make it inside a running event loop; `close` it there."""

    def __init__(self, server: ServerConfig, *, clock: Clock, deadline: float = 10.0) -> None:
        """`deadline`: seconds for one call, tries after a 429 included; for a watch until its headers."""
        self._transport = Transport(server, clock=clock, deadline=deadline)

    async def server_version(self) -> ServerVersion:
        """GET /version. Providers write minors like `34+`."""
        version = await self._transport.call(Call(verb=Verb.GET, resource=VERSION))
        return ServerVersion(major=int(version["major"].rstrip("+")), minor=int(version["minor"].rstrip("+")))

    async def get(self, resource: Resource, name: str, *, namespace: str | None = None) -> Object:
        """One object."""
        return await self._transport.call(Call(verb=Verb.GET, resource=resource, namespace=namespace, name=name))

    async def list(
        self,
        resource: Resource,
        *,
        namespace: str | None = None,
        field_selector: Mapping[str, str] | None = None,
        label_selector: Mapping[str, str] | None = None,
    ) -> ObjectList:
        """All objects that match, each with the kind and apiVersion that the server leaves out in lists."""
        call = Call(verb=Verb.LIST, resource=resource, namespace=namespace)
        query = selector_query(field_selector=field_selector, label_selector=label_selector)
        found = await self._transport.call(call, query=query)
        type_meta = {"apiVersion": found["apiVersion"], "kind": found["kind"].removesuffix("List")}
        items = tuple(type_meta | item for item in found.get("items") or ())
        return ObjectList(items=items, resource_version=found["metadata"]["resourceVersion"])

    async def watch(
        self,
        resource: Resource,
        *,
        resource_version: str,
        namespace: str | None = None,
        field_selector: Mapping[str, str] | None = None,
        label_selector: Mapping[str, str] | None = None,
        timeout_seconds: int = 270,
    ) -> AsyncGenerator[WatchEvent, None]:
        """Changes after `resource_version`. Close it (`contextlib.aclosing`) when leaving early, so that the connection goes too."""
        call = Call(verb=Verb.WATCH, resource=resource, namespace=namespace)
        query = selector_query(field_selector=field_selector, label_selector=label_selector) | {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            "timeoutSeconds": str(timeout_seconds),
        }
        lines = self._transport.stream(call, query=query, silence=timeout_seconds + SILENCE_AFTER_TIMEOUT)
        async with contextlib.aclosing(lines):
            async for event in lines:
                if event["type"] == "ERROR":
                    raise from_answer(call, read_error_event(event["object"]))
                yield WatchEvent(kind=WatchKind(event["type"]), object=event["object"])

    async def create(self, resource: Resource, body: Object, *, namespace: str | None = None) -> Object:
        """POST."""
        return await self._transport.call(Call(verb=Verb.CREATE, resource=resource, namespace=namespace), body=body)

    async def update(self, resource: Resource, body: Object, *, namespace: str | None = None) -> Object:
        """PUT."""
        call = Call(verb=Verb.UPDATE, resource=resource, namespace=namespace, name=body["metadata"]["name"])
        return await self._transport.call(call, body=body)

    async def update_status(self, resource: Resource, body: Object, *, namespace: str | None = None) -> Object:
        """PUT of the status subresource."""
        name = body["metadata"]["name"]
        call = Call(verb=Verb.UPDATE, resource=resource, namespace=namespace, name=name, subresource="status")
        return await self._transport.call(call, body=body)

    async def delete(
        self,
        resource: Resource,
        name: str,
        *,
        namespace: str | None = None,
        uid: str | None = None,
        resource_version: str | None = None,
    ) -> None:
        """DELETE, with preconditions when given."""
        given = {"uid": uid, "resourceVersion": resource_version}
        preconditions = {key: value for key, value in given.items() if value is not None}
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": preconditions} if preconditions else None
        call = Call(verb=Verb.DELETE, resource=resource, namespace=namespace, name=name)
        await self._transport.call(call, body=options)

    async def close(self) -> None:
        """Close every connection; watches that still run end with Unavailable."""
        await self._transport.close()
