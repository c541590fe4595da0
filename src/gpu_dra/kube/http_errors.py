"""The one door where what aiohttp raised or the server answered becomes an error of `kube.errors`.

Source of codes and reasons: `metav1.Status` and apimachinery `pkg/api/errors` (Kubernetes 1.34 to 1.37). Every message begins with the
call (verb, resource, namespace/name) and ends with the server's own words.
"""

from __future__ import annotations

import json
import ssl
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import aiohttp

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
from gpu_dra.kube.rest import Verb

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpu_dra.core.errors import GpuDraError
    from gpu_dra.kube.rest import Call

DEFAULT_RETRY_AFTER = 1.0
"""Seconds to wait on a 429 without a readable Retry-After; what the API server's own priority-and-fairness filter sends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An answer that is not a success: HTTP code, the Status object's reason and message, and Retry-After in seconds."""

    code: int
    reason: str
    message: str
    retry_after: float | None = None


def read_answer(code: int, headers: Mapping[str, str], body: bytes) -> Answer:
    """A refusal as the server worded it; a proxy that answers without a Status object is quoted as it is."""
    try:
        status = json.loads(body)
    except ValueError:
        status = None
    if not isinstance(status, dict):
        status = {"message": body[:300].decode(errors="replace").strip()}
    return Answer(
        code=code,
        reason=str(status.get("reason") or ""),
        message=str(status.get("message") or f"HTTP {code} without a message"),
        retry_after=_seconds(headers.get("Retry-After")),
    )


def read_error_event(status: Mapping[str, Any]) -> Answer:
    """The Status object of a watch's ERROR event."""
    return Answer(
        code=int(status.get("code") or 500),
        reason=str(status.get("reason") or ""),
        message=str(status.get("message") or "the watch ended with an error without a message"),
    )


def from_answer(call: Call, answer: Answer) -> GpuDraError:
    """What an unsuccessful answer to `call` means for the caller."""
    if answer.code == 429:
        wait = DEFAULT_RETRY_AFTER if answer.retry_after is None else answer.retry_after
        return TooManyRequests(f"{call}: {answer.message} (asked to wait {wait:g} s)", retry_after=wait)
    return _kind(call, answer)(f"{call}: {_explanation(call, answer)}")


def _kind(call: Call, answer: Answer) -> type[GpuDraError]:
    """409 has two meanings: the name is taken, or the object changed; only a create without a reason is guessed to be the first."""
    if answer.code == 409:
        taken = answer.reason == "AlreadyExists" or (call.verb is Verb.CREATE and answer.reason != "Conflict")
        return AlreadyExists if taken else WriteConflict
    if answer.code in _KINDS:
        return _KINDS[answer.code]
    return Invalid if 400 <= answer.code < 500 else Unavailable


_KINDS: dict[int, type[GpuDraError]] = {401: Unauthorized, 403: Forbidden, 404: NotFound, 408: Unavailable, 410: Gone}


def _explanation(call: Call, answer: Answer) -> str:
    if answer.code == 401:
        return f"the API server does not accept our credentials: {answer.message}"
    # RBAC and the node authorizer say that somebody "cannot" do it; an admission plugin says something else and needs no role.
    if answer.code == 403 and " cannot " in answer.message:
        return f"{answer.message}; missing right: {call.verb} {call.right}"
    return answer.message if answer.code < 500 else f"HTTP {answer.code}: {answer.message}"


def from_transport(call: Call, server: str, error: Exception) -> GpuDraError:
    """What a failure to get any answer from `server` means: always `Unavailable`, with what to check where that is known.

    A certificate that does not verify is also `Unavailable`: CA bundles are rotated under a running process.
    """
    match error:
        case TimeoutError():
            fact = f"{server} did not answer in time"
        case aiohttp.ClientConnectorCertificateError() | ssl.SSLCertVerificationError():
            fact = f"the certificate of {server} does not verify: {error}; check the CA bundle and the server name"
        case aiohttp.ClientConnectorDNSError():
            fact = f"the name of {server} does not resolve: {error}"
        case aiohttp.ClientConnectorError():
            fact = f"cannot connect to {server}: {error.strerror or error}"
        case aiohttp.ServerDisconnectedError() | aiohttp.ClientPayloadError() | ConnectionError():
            fact = f"the connection to {server} was lost: {error}"
        case json.JSONDecodeError() | UnicodeDecodeError():
            fact = f"{server} answered with something that is not JSON: {error}"
        case _:
            fact = f"{server}: {type(error).__name__}: {error}"
    return Unavailable(f"{call}: {fact}")


def _seconds(text: str | None) -> float | None:
    """Retry-After in its seconds form; the API server never sends the date form (apimachinery `pkg/api/errors`, SuggestsClientDelay)."""
    try:
        return None if text is None else max(0.0, float(text))
    except ValueError:
        return None
