"""HTTP to the API server: one aiohttp session, warm connections, credentials that renew, a deadline on everything.

Made for the claim's GET on the prepare path: no client-side rate limit, few connections that stay open as long as the server keeps
them. Knows requests and bytes; `kube.http` knows the verbs. Every failure leaves here as one of `kube.errors`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import aiohttp
from yarl import URL

from gpu_dra.kube.auth import Credentials, Renewing, TlsIdentity
from gpu_dra.kube.errors import TooManyRequests
from gpu_dra.kube.http_errors import from_answer, from_transport, read_answer
from gpu_dra.kube.rest import METHODS

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Mapping

    from gpu_dra.core.clock import Clock
    from gpu_dra.kube.api import Object
    from gpu_dra.kube.auth import ServerConfig
    from gpu_dra.kube.rest import Call

log = logging.getLogger(__name__)

USER_AGENT = "gpu-dra"

IDLE_SECONDS = 85.0
"""Keep an idle connection just shorter than the API server does (90 s: apiserver `pkg/server/secure_serving.go`, IdleTimeout)."""

PARALLEL_REQUESTS = 8
"""Requests in flight besides watches; the rest wait for a warm connection, which is far cheaper than a TLS handshake each
(64 GETs at once on two cores: 26 ms with 8 connections, 138 ms with one each)."""

READ_BUFFER = 2**21
"""Bytes; twice this bounds a watch line. aiohttp's own default refuses events over 512 KiB, which long lists in an object can pass."""

SHORTEST_WAIT = 0.1
"""Seconds between two tries when the server says Retry-After: 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One HTTP request, ready to be sent more than once. `silence`: seconds a stream may say nothing; None for a single answer."""

    call: Call
    url: URL
    data: bytes | None
    silence: float | None = None

    @property
    def headers(self) -> dict[str, str]:
        """What is particular to this request; the session adds the rest."""
        return {} if self.data is None else {"Content-Type": "application/json"}


class Transport:
    """Sends calls to one API server. Make it inside a running event loop; `close` it there."""

    def __init__(self, server: ServerConfig, *, clock: Clock, deadline: float) -> None:
        """`deadline`: seconds for one call, tries after a 429 included; for a stream until its headers."""
        self._server = server
        self._clock = clock
        self._deadline = deadline
        self._credentials = Renewing(server.source, clock=clock)
        self._tls = TlsIdentity(verify=server.verify)
        self._followed: Credentials | None = None
        self._slots = asyncio.Semaphore(PARALLEL_REQUESTS)
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=0, keepalive_timeout=IDLE_SECONDS, ssl=self._tls.context, socket_factory=_socket_that_notices_a_dead_peer
            ),
            headers={"Accept": "application/json", "Accept-Encoding": "identity", "User-Agent": USER_AGENT},
            cookie_jar=aiohttp.DummyCookieJar(),
            proxy=server.proxy,
            trust_env=False,
            read_bufsize=READ_BUFFER,
        )

    async def call(self, call: Call, *, query: Mapping[str, str] | None = None, body: Object | None = None) -> Object:
        """The JSON answer, within the deadline; tried again when the server asks to wait and there is time to."""
        data = None if body is None else json.dumps(body, separators=(",", ":")).encode()
        request = Request(call=call, url=self._url(call, query), data=data)
        end = self._clock.monotonic() + self._deadline
        while True:
            try:
                async with self._response(request, deadline=end - self._clock.monotonic()) as response:
                    answer: Object = json.loads(await response.read())
                    return answer
            except TooManyRequests as error:
                wait = max(error.retry_after, SHORTEST_WAIT)
                if self._clock.monotonic() + wait >= end:
                    raise
                log.info("the API server asks to wait", extra={"call": str(call), "seconds": wait})
                await self._clock.sleep(wait)

    async def stream(self, call: Call, *, query: Mapping[str, str], silence: float) -> AsyncGenerator[Object, None]:
        """JSON values line by line until the server ends the answer; Unavailable after `silence` seconds without a byte."""
        request = Request(call=call, url=self._url(call, query), data=None, silence=silence)
        async with self._response(request, deadline=self._deadline) as response:
            async for line in response.content:
                yield json.loads(line)

    async def close(self) -> None:
        """Close every connection; streams that still run end with Unavailable."""
        await self._session.close()

    def _url(self, call: Call, query: Mapping[str, str] | None) -> URL:
        return URL(self._server.url + call.path + (f"?{urlencode(query)}" if query else ""), encoded=True)

    @contextlib.asynccontextmanager
    async def _response(self, request: Request, *, deadline: float) -> AsyncIterator[aiohttp.ClientResponse]:
        """A successful response to read from; whatever goes wrong until it has been read leaves here as one of our errors."""
        try:
            slot = self._slots if request.silence is None else contextlib.nullcontext()
            async with asyncio.timeout(deadline) as limit, slot, await self._accepted(request) as response:
                if response.status >= 300:
                    raise from_answer(request.call, read_answer(response.status, response.headers, await response.read()))
                if request.silence is not None:
                    limit.reschedule(None)
                yield response
        except (aiohttp.ClientError, OSError, ValueError) as error:  # a TimeoutError is an OSError
            raise from_transport(request.call, self._server.url, error) from error

    async def _accepted(self, request: Request) -> aiohttp.ClientResponse:
        """The server's response; on 401 the credentials are read again and it is asked once more."""
        credentials = await self._credentials.current()
        response = await self._send(request, credentials)
        if response.status == 401:
            response.release()
            response = await self._send(request, await self._credentials.after_rejection(credentials))
        return response

    async def _send(self, request: Request, credentials: Credentials) -> aiohttp.ClientResponse:
        """Send once. aiohttp itself repeats an idempotent request once when its kept-alive connection turns out to be closed."""
        if credentials is not self._followed:
            await asyncio.to_thread(self._tls.follow, credentials)
            self._followed = credentials
        authorization = {} if credentials.authorization is None else {"Authorization": credentials.authorization}
        return await self._session.request(
            METHODS[request.call.verb],
            request.url,
            data=request.data,
            headers=request.headers | authorization,
            timeout=aiohttp.ClientTimeout(total=None, sock_read=request.silence),
            allow_redirects=False,
            server_hostname=self._server.tls_server_name,
        )


def _socket_that_notices_a_dead_peer(address: tuple[Any, Any, int, str, tuple[Any, ...]]) -> socket.socket:
    """A server that vanished without a word fails a request or an idle watch after about a minute, not after TCP's quarter of an hour."""
    family, kind, protocol, _, _ = address
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 30)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 60_000)
    return made
