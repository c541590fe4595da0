"""The API server fake over HTTP, so that the real client and the real entry points can be run against it.

REST paths, watch streams and Status errors of kube-apiserver over a `FakeKubeApi`, whose faults and outage switch work here too: an
outage refuses every connection's request with 503. Not a server for others: no discovery, no patches, no authorization.

    python -m gpu_dra.kube.fake_server --port 8001 --kubeconfig-out fake.kubeconfig
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import ssl
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aiohttp import web
from aiohttp.typedefs import Handler

from gpu_dra.core.clock import SystemClock
from gpu_dra.core.errors import GpuDraError
from gpu_dra.core.files import write_atomically
from gpu_dra.kube.api import Resource
from gpu_dra.kube.errors import (
    AlreadyExists,
    Forbidden,
    Gone,
    Invalid,
    NotFound,
    TooManyRequests,
    Unauthorized,
    Unavailable,
    WriteConflict,
)
from gpu_dra.kube.fake import FakeKubeApi
from gpu_dra.kube.fake_kinds import api_version, kind_of
from gpu_dra.kube.rest import parse_selector

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from gpu_dra.kube.api import Object

STATUSES: dict[type[GpuDraError], tuple[int, str]] = {
    NotFound: (404, "NotFound"),
    Invalid: (422, "Invalid"),
    Forbidden: (403, "Forbidden"),
    AlreadyExists: (409, "AlreadyExists"),
    WriteConflict: (409, "Conflict"),
    Gone: (410, "Expired"),
    Unauthorized: (401, "Unauthorized"),
    TooManyRequests: (429, "TooManyRequests"),
    Unavailable: (503, "ServiceUnavailable"),
}
"""HTTP code and Status reason of each error (apimachinery `pkg/api/errors`)."""


class FakeApiServer:
    """A `FakeKubeApi` behind a port of 127.0.0.1. `token`, when set, is the only one accepted."""

    def __init__(self, api: FakeKubeApi, *, tls: ssl.SSLContext | None = None, token: str | None = None) -> None:
        self.api = api
        self.token = token
        self._tls = tls
        self._runner: web.AppRunner | None = None
        self._port = 0

    @property
    def url(self) -> str:
        """Where it listens, once started."""
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self._port}"

    async def start(self, *, port: int = 0) -> None:
        """Listen; port 0 takes a free one. Raises OSError."""
        app = web.Application()
        app.router.add_get("/version", self._version)
        for group in ("/api/{version}", "/apis/{group}/{version}"):
            for scope in ("", "/namespaces/{namespace}"):
                app.router.add_get(f"{group}{scope}/{{plural}}", self._list_or_watch)
                app.router.add_post(f"{group}{scope}/{{plural}}", self._create)
                app.router.add_get(f"{group}{scope}/{{plural}}/{{name}}", self._get)
                app.router.add_put(f"{group}{scope}/{{plural}}/{{name}}", self._update)
                app.router.add_put(f"{group}{scope}/{{plural}}/{{name}}/status", self._update_status)
                app.router.add_delete(f"{group}{scope}/{{plural}}/{{name}}", self._delete)
        app.middlewares.append(self._errors_as_status)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", port or self._port, ssl_context=self._tls, reuse_address=True)
        await site.start()
        self._port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Stop listening and drop every connection; `start` listens on the same port again."""
        if self._runner is not None:
            await self.api.close()
            await self._runner.cleanup()
            self._runner = None

    @web.middleware
    async def _errors_as_status(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            if self.token is not None and request.headers.get("Authorization") != f"Bearer {self.token}":
                raise Unauthorized("Unauthorized")
            response: web.StreamResponse = await handler(request)
        except GpuDraError as error:
            wait = {"Retry-After": f"{error.retry_after:g}"} if isinstance(error, TooManyRequests) else {}
            status = _status(error)
            return web.json_response(status, status=status["code"], headers=wait)
        else:
            return response

    async def _version(self, request: web.Request) -> web.Response:
        version = await self.api.server_version()
        return web.json_response({"major": str(version.major), "minor": str(version.minor)})

    async def _get(self, request: web.Request) -> web.Response:
        return web.json_response(await self.api.get(_resource(request), request.match_info["name"], namespace=_namespace(request)))

    async def _list_or_watch(self, request: web.Request) -> web.StreamResponse:
        if request.query.get("watch") == "true":
            return await self._watch(request)
        resource = _resource(request)
        found = await self.api.list(resource, namespace=_namespace(request), **_selectors(request))
        bare = [{key: value for key, value in item.items() if key not in ("apiVersion", "kind")} for item in found.items]
        return web.json_response(
            {
                "apiVersion": api_version(resource),
                "kind": f"{kind_of(resource).name}List",
                "metadata": {"resourceVersion": found.resource_version},
                "items": bare,
            }
        )

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        events = self.api.watch(
            _resource(request),
            resource_version=request.query["resourceVersion"],
            namespace=_namespace(request),
            timeout_seconds=int(request.query["timeoutSeconds"]),
            **_selectors(request),
        )
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        async with contextlib.aclosing(_as_lines(events)) as lines:
            with contextlib.suppress(ConnectionResetError):  # the client has gone
                async for line in lines:
                    await response.write(line)
        return response

    async def _create(self, request: web.Request) -> web.Response:
        made = await self.api.create(_resource(request), await request.json(), namespace=_namespace(request))
        return web.json_response(made, status=201)

    async def _update(self, request: web.Request) -> web.Response:
        return web.json_response(await self.api.update(_resource(request), await request.json(), namespace=_namespace(request)))

    async def _update_status(self, request: web.Request) -> web.Response:
        return web.json_response(
            await self.api.update_status(_resource(request), await request.json(), namespace=_namespace(request))
        )

    async def _delete(self, request: web.Request) -> web.Response:
        options = await request.json() if request.can_read_body else {}
        preconditions = options.get("preconditions") or {}
        await self.api.delete(
            _resource(request),
            request.match_info["name"],
            namespace=_namespace(request),
            uid=preconditions.get("uid"),
            resource_version=preconditions.get("resourceVersion"),
        )
        return web.json_response({"apiVersion": "v1", "kind": "Status", "status": "Success"})


async def _as_lines(events: AsyncGenerator[Any, None]) -> AsyncGenerator[bytes, None]:
    """Watch events as a server sends them; an error is the last of them, as the watch cache sends a 410 (apiserver `storage/cacher`)."""
    async with contextlib.aclosing(events):
        try:
            async for event in events:
                yield json.dumps({"type": str(event.kind), "object": event.object}).encode() + b"\n"
        except GpuDraError as error:
            yield json.dumps({"type": "ERROR", "object": _status(error)}).encode() + b"\n"


def _status(error: GpuDraError) -> Object:
    code, reason = STATUSES.get(type(error), (500, "InternalError"))
    return {"apiVersion": "v1", "kind": "Status", "status": "Failure", "message": str(error), "reason": reason, "code": code}


def _resource(request: web.Request) -> Resource:
    """A list over all namespaces does not show in its path whether the resource has any; the table of kinds does."""
    match = request.match_info
    resource = Resource(group=match.get("group", ""), version=match["version"], plural=match["plural"], namespaced=False)
    return replace(resource, namespaced=kind_of(resource).namespaced)


def _namespace(request: web.Request) -> str | None:
    return request.match_info.get("namespace")


def _selectors(request: web.Request) -> dict[str, dict[str, str]]:
    return {
        "field_selector": parse_selector(request.query.get("fieldSelector", "")),
        "label_selector": parse_selector(request.query.get("labelSelector", "")),
    }


def kubeconfig(url: str, *, token: str = "fake", ca_file: Path | None = None) -> Object:
    """A kubeconfig for the server at `url`."""
    cluster: Object = {"server": url}
    if ca_file is not None:
        cluster["certificate-authority"] = str(ca_file)
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "fake", "cluster": cluster}],
        "users": [{"name": "fake", "user": {"token": token}}],
        "contexts": [{"name": "fake", "context": {"cluster": "fake", "user": "fake"}}],
        "current-context": "fake",
    }


def main() -> None:
    """Serve until interrupted."""
    parser = argparse.ArgumentParser(prog="python -m gpu_dra.kube.fake_server", description="Kubernetes API server fake for trials")
    parser.add_argument("--port", type=int, default=0, help="TCP port on 127.0.0.1 (default: a free one)")
    parser.add_argument("--kubeconfig-out", type=Path, required=True, help="written once the server listens")
    parser.add_argument("--tls-cert", type=Path, help="PEM certificate for 127.0.0.1; serves HTTPS")
    parser.add_argument("--tls-key", type=Path, help="PEM key of --tls-cert")
    parser.add_argument("--tls-ca", type=Path, help="PEM CA of --tls-cert, named in the kubeconfig")
    arguments = parser.parse_args()
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_serve(arguments))


async def _serve(arguments: argparse.Namespace) -> None:
    tls = None
    if arguments.tls_cert is not None:
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        tls.load_cert_chain(arguments.tls_cert, arguments.tls_key)
    server = FakeApiServer(FakeKubeApi(clock=SystemClock()), tls=tls)
    await server.start(port=arguments.port)
    document = kubeconfig(server.url, ca_file=arguments.tls_ca)
    write_atomically(arguments.kubeconfig_out, json.dumps(document, indent=2).encode(), mode=0o600)
    try:
        await asyncio.Event().wait()
    finally:
        await server.stop()


if __name__ == "__main__":
    main()
