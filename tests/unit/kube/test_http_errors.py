"""Every answer and every broken connection becomes an error that says what the caller can do."""

import json

import aiohttp
import pytest

from gpu_dra.core.errors import Conflict, NotReady, Refused
from gpu_dra.kube.api import RESOURCE_CLAIMS
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
from gpu_dra.kube.http_errors import from_answer, from_transport, read_answer
from gpu_dra.kube.rest import Call, Verb

GET = Call(verb=Verb.GET, resource=RESOURCE_CLAIMS, namespace="team", name="a")
CREATE = Call(verb=Verb.CREATE, resource=RESOURCE_CLAIMS, namespace="team")


def answered(call, code, *, reason="", message="words of the server", headers=None):
    body = json.dumps({"kind": "Status", "reason": reason, "message": message, "code": code}).encode()
    return from_answer(call, read_answer(code, headers or {}, body))


@pytest.mark.parametrize(
    ("call", "code", "reason", "error", "caller_can"),
    [
        (GET, 400, "BadRequest", Invalid, Refused),
        (GET, 401, "Unauthorized", Unauthorized, NotReady),
        (GET, 403, "Forbidden", Forbidden, Refused),
        (GET, 404, "NotFound", NotFound, Refused),
        (GET, 408, "Timeout", Unavailable, NotReady),
        (CREATE, 409, "AlreadyExists", AlreadyExists, Conflict),
        (CREATE, 409, "Conflict", WriteConflict, Conflict),
        (GET, 409, "Conflict", WriteConflict, Conflict),
        (GET, 410, "Expired", Gone, NotReady),
        (CREATE, 413, "RequestEntityTooLarge", Invalid, Refused),
        (CREATE, 422, "Invalid", Invalid, Refused),
        (GET, 429, "TooManyRequests", TooManyRequests, NotReady),
        (GET, 500, "InternalError", Unavailable, NotReady),
        (GET, 503, "ServiceUnavailable", Unavailable, NotReady),
        (GET, 504, "Timeout", Unavailable, NotReady),
        (GET, 302, "", Unavailable, NotReady),
    ],
)
def test_an_answer_becomes_what_the_caller_can_do(call, code, reason, error, caller_can):
    made = answered(call, code, reason=reason)
    assert type(made) is error
    assert isinstance(made, caller_can)


def test_a_message_names_verb_resource_object_and_the_servers_reason():
    assert str(answered(GET, 404, message='resourceclaims "a" not found')) == (
        'get resourceclaims.resource.k8s.io team/a: resourceclaims "a" not found'
    )


def test_a_denial_names_the_missing_right():
    said = 'User "plugin" cannot get resource "resourceclaims" in API group "resource.k8s.io"'
    assert str(answered(GET, 403, message=said)).endswith("; missing right: get resourceclaims.resource.k8s.io")


def test_a_denial_by_an_admission_plugin_asks_for_no_role():
    """A role would not help against NodeRestriction or a policy."""
    assert "missing right" not in str(answered(GET, 403, message="denied by policy only-own-node"))


def test_the_wait_asked_for_is_told():
    assert answered(GET, 429, headers={"Retry-After": "3"}).retry_after == 3


@pytest.mark.parametrize("header", [{}, {"Retry-After": "Wed, 21 Oct 2026 07:28:00 GMT"}])
def test_a_wait_that_is_not_said_in_seconds_is_one_second(header):
    assert answered(GET, 429, headers=header).retry_after == 1


def test_a_proxy_that_speaks_html_is_quoted():
    made = from_answer(GET, read_answer(502, {}, b"<html>Bad Gateway</html>"))
    assert str(made) == "get resourceclaims.resource.k8s.io team/a: HTTP 502: <html>Bad Gateway</html>"


@pytest.mark.parametrize(
    ("error", "fact"),
    [
        (TimeoutError(), "did not answer in time"),
        (aiohttp.ServerDisconnectedError(), "was lost"),
        (ConnectionResetError("reset by peer"), "was lost"),
        (json.JSONDecodeError("Expecting value", "<", 0), "not JSON"),
        (aiohttp.ClientError("odd"), "ClientError: odd"),
    ],
)
def test_a_failure_without_an_answer_can_be_tried_again_and_names_the_server(error, fact):
    made = from_transport(GET, "https://10.0.0.1:6443", error)
    assert isinstance(made, Unavailable)
    assert str(made).startswith("get resourceclaims.resource.k8s.io team/a: ")
    assert "https://10.0.0.1:6443" in str(made)
    assert fact in str(made)
