"""The client over HTTP on a bad day: credentials expire, servers ask to wait, connections break, certificates do not verify."""

import asyncio
import json
import ssl
from contextlib import aclosing

import pytest
import trustme

from gpu_dra.core.clock import FakeClock, SystemClock
from gpu_dra.kube.api import NODES, RESOURCE_SLICES
from gpu_dra.kube.auth import FileCredentials, ServerConfig
from gpu_dra.kube.errors import Gone, NotFound, TooManyRequests, Unauthorized, Unavailable
from gpu_dra.kube.fake import FakeKubeApi
from gpu_dra.kube.fake_server import FakeApiServer
from gpu_dra.kube.http import HttpKubeApi
from gpu_dra.kube.rest import Verb


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def fake():
    fake = FakeKubeApi(clock=SystemClock())
    fake.store.create(NODES, {"metadata": {"name": "a"}})
    return fake


@pytest.fixture
async def server(fake):
    server = FakeApiServer(fake)
    await server.start()
    yield server
    await server.stop()


@pytest.fixture
async def connect(clock):
    """Clients that are closed at the end."""
    clients = []

    def connect(url, *, deadline=10.0, source=None, **settings):
        config = ServerConfig(url=url, source=source or FileCredentials(), **settings)
        clients.append(HttpKubeApi(config, clock=clock, deadline=deadline))
        return clients[-1]

    yield connect
    for client in clients:
        await client.close()


@pytest.fixture
async def api(connect, server):
    return connect(server.url)


@pytest.fixture
async def raw_server():
    """Starts servers that speak HTTP as badly as a test wants; each gets the reader and writer of a connection."""
    servers = []

    async def start(handle):
        server = await asyncio.start_server(handle, "127.0.0.1", 0)
        servers.append(server)
        return f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"

    yield start
    for server in servers:
        server.close()
        await server.wait_closed()


async def answer(reader, writer, body=b'{"kind": "Node"}', status="200 OK"):
    """Read one request's head and answer it."""
    await reader.readuntil(b"\r\n\r\n")
    head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    await writer.drain()


async def test_a_token_that_was_replaced_is_read_again_and_the_call_succeeds(connect, server, tmp_path):
    token = tmp_path / "token"
    token.write_text("old")
    server.token = "old"
    api = connect(server.url, source=FileCredentials(token_file=token))
    await api.get(NODES, "a")
    token.write_text("new")
    server.token = "new"
    assert (await api.get(NODES, "a"))["metadata"]["name"] == "a"


async def test_credentials_that_stay_wrong_are_unauthorized(connect, server):
    server.token = "right"
    with pytest.raises(Unauthorized, match="get nodes a: the API server does not accept our credentials"):
        await connect(server.url, source=FileCredentials(token="wrong")).get(NODES, "a")


async def test_a_server_that_asks_to_wait_is_given_that_time_and_then_the_call_succeeds(api, fake, clock):
    fake.fail(TooManyRequests("busy", retry_after=2))
    async with asyncio.TaskGroup() as group:
        getting = group.create_task(api.get(NODES, "a"))
        await _until(lambda: len(fake.calls) == 1)
        await _until_asleep(clock)
        await clock.advance(2)
    assert getting.result()["metadata"]["name"] == "a"


async def test_a_wait_longer_than_the_deadline_is_the_callers_to_decide(api, fake):
    fake.fail(TooManyRequests("busy", retry_after=60))
    with pytest.raises(TooManyRequests) as caught:
        await api.get(NODES, "a")
    assert caught.value.retry_after == 60
    assert len(fake.calls) == 1


async def test_a_kept_connection_that_the_server_closed_costs_no_error(connect, raw_server):
    """The server may close at the very moment at which the next request is written."""
    connections = 0

    async def answer_once_then_close_on_the_next_request(reader, writer):
        nonlocal connections
        connections += 1
        await answer(reader, writer)
        await reader.read(1)
        writer.close()

    api = connect(await raw_server(answer_once_then_close_on_the_next_request))
    await api.get(NODES, "a")
    await api.get(NODES, "a")
    assert connections == 2


async def test_a_create_whose_connection_breaks_is_not_sent_twice(connect, raw_server):
    """The first may have been carried out."""
    requests = 0

    async def hang_up(reader, writer):
        nonlocal requests
        await reader.readuntil(b"\r\n\r\n")
        requests += 1
        writer.close()

    api = connect(await raw_server(hang_up))
    with pytest.raises(Unavailable, match="was lost"):
        await api.create(NODES, {"metadata": {"name": "a"}})
    assert requests == 1


async def test_a_server_that_never_answers_is_given_up_at_the_deadline(connect, raw_server):
    async def stay_silent(reader, writer):
        await reader.read()
        writer.close()

    with pytest.raises(Unavailable, match="did not answer in time"):
        await connect(await raw_server(stay_silent), deadline=0.05).get(NODES, "a")


async def test_the_deadline_counts_for_calls_that_wait_behind_others_too(connect, raw_server):
    async def stay_silent(reader, writer):
        await reader.read()
        writer.close()

    api = connect(await raw_server(stay_silent), deadline=0.2)
    async with asyncio.timeout(2):
        results = await asyncio.gather(*(api.get(NODES, "a") for _ in range(50)), return_exceptions=True)
    assert {type(result) for result in results} == {Unavailable}


async def test_nobody_listening_is_unavailable_and_names_the_server(connect):
    with pytest.raises(Unavailable, match=r"get nodes a: cannot connect to http://127\.0\.0\.1:1"):
        await connect("http://127.0.0.1:1").get(NODES, "a")


async def test_an_answer_that_is_no_json_is_unavailable(connect, raw_server):
    async def answer_html(reader, writer):
        await answer(reader, writer, b"<html>")
        writer.close()

    with pytest.raises(Unavailable, match="not JSON"):
        await connect(await raw_server(answer_html)).get(NODES, "a")


@pytest.fixture
async def tls_server(fake):
    authority = trustme.CA()
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("kubernetes.default").configure_cert(tls)
    server = FakeApiServer(fake, tls=tls)
    await server.start()
    yield server, authority.cert_pem.bytes()
    await server.stop()


async def test_a_certificate_of_another_authority_is_not_trusted(connect, tls_server):
    server, _ = tls_server
    stranger = FileCredentials(ca=trustme.CA().cert_pem.bytes())
    with pytest.raises(Unavailable, match=r"does not verify.*check the CA bundle"):
        await connect(server.url, source=stranger, tls_server_name="kubernetes.default").get(NODES, "a")


async def test_a_certificate_for_another_name_is_not_trusted(connect, tls_server):
    server, ca = tls_server
    with pytest.raises(Unavailable, match="does not verify"):
        await connect(server.url, source=FileCredentials(ca=ca)).get(NODES, "a")


async def test_the_name_in_the_certificate_can_be_given(connect, tls_server):
    server, ca = tls_server
    api = connect(server.url, source=FileCredentials(ca=ca), tls_server_name="kubernetes.default")
    assert (await api.get(NODES, "a"))["metadata"]["name"] == "a"


async def test_a_long_watch_event_arrives_whole(api, fake):
    start = fake.store.version
    long = "x" * 1_500_000
    fake.store.create(NODES, {"metadata": {"name": "b", "annotations": {"long": long}}})
    async with aclosing(api.watch(NODES, resource_version=start)) as watch:
        event = await anext(watch)
    assert event.object["metadata"]["annotations"]["long"] == long


async def test_a_watch_whose_history_is_forgotten_while_it_runs_is_gone(api, fake):
    """The server says so in an event of a successful response, since its headers are long sent."""
    start = fake.store.version
    fake.store.create(NODES, {"metadata": {"name": "b"}})
    async with aclosing(api.watch(NODES, resource_version=start)) as watch:
        await anext(watch)
        fake.break_watches(Gone("too old resource version"))
        with pytest.raises(Gone, match="watch nodes: too old resource version"):
            await anext(watch)


async def test_a_watch_whose_server_goes_away_is_unavailable(connect, raw_server):
    async def begin_and_hang_up(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        line = json.dumps({"type": "ADDED", "object": {"metadata": {"name": "a"}}}).encode() + b"\n"
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n" % (len(line), line))
        await writer.drain()
        writer.close()

    api = connect(await raw_server(begin_and_hang_up))
    async with aclosing(api.watch(NODES, resource_version="1")) as watch:
        await anext(watch)
        with pytest.raises(Unavailable, match="was lost"):
            await anext(watch)


async def test_watches_do_not_use_up_the_connections_of_calls(api, fake):
    async with asyncio.TaskGroup() as group:
        start = fake.store.version
        watching = [group.create_task(_one_event(api.watch(RESOURCE_SLICES, resource_version=start))) for _ in range(20)]
        await _until(lambda: sum(call.verb is Verb.WATCH for call in fake.calls) == 20)
        assert (await api.get(NODES, "a"))["metadata"]["name"] == "a"
        fake.store.create(RESOURCE_SLICES, {"metadata": {"name": "s"}})
    assert len({task.result().object["metadata"]["name"] for task in watching}) == 1


async def test_the_server_can_go_and_come_back(api, server):
    await api.get(NODES, "a")
    await server.stop()
    with pytest.raises(Unavailable):
        await api.get(NODES, "a")
    await server.start()
    assert (await api.get(NODES, "a"))["metadata"]["name"] == "a"


async def test_a_missing_api_is_not_found(connect, raw_server):
    async def not_served(reader, writer):
        await answer(reader, writer, b"404 page not found", status="404 Not Found")
        writer.close()

    with pytest.raises(NotFound, match="404 page not found"):
        await connect(await raw_server(not_served)).list(RESOURCE_SLICES)


async def _one_event(watch):
    async with aclosing(watch):
        return await anext(watch)


async def _until(condition):
    async with asyncio.timeout(5):
        while True:
            if condition():
                return
            await asyncio.sleep(0)


async def _until_asleep(clock):
    await _until(lambda: clock._sleepers)
