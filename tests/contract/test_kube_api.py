"""The API fake keeps the contract in memory, and the client over HTTP keeps it against the fake's HTTP face."""

import ssl
from contextlib import aclosing

import pytest
import trustme

from gpu_dra.core.clock import SystemClock
from gpu_dra.kube.api import RESOURCE_SLICES, WatchKind
from gpu_dra.kube.auth import FileCredentials, ServerConfig
from gpu_dra.kube.errors import Gone
from gpu_dra.kube.fake import FakeKubeApi
from gpu_dra.kube.fake_server import FakeApiServer
from gpu_dra.kube.http import HttpKubeApi
from tests.contract.kube_api_contract import KubeApiContract


@pytest.fixture(scope="module")
def authority():
    return trustme.CA()


class HistoryContract:
    """What a real server does too, but only once it is older than any test wants to wait."""

    async def test_a_watch_from_a_version_long_past_is_gone(self, api):
        with pytest.raises(Gone):
            async with aclosing(api.watch(RESOURCE_SLICES, resource_version="1")) as watch:
                await anext(watch)

    async def test_a_bookmark_says_from_where_to_go_on(self, api):
        """A real server sends one about once a minute."""
        start = (await api.list(RESOURCE_SLICES)).resource_version
        async with aclosing(api.watch(RESOURCE_SLICES, resource_version=start, timeout_seconds=1)) as watch:
            bookmark = await anext(watch)
        assert bookmark.kind is WatchKind.BOOKMARK
        assert bookmark.object["metadata"]["resourceVersion"] == start


class TestFakeKubeApi(KubeApiContract, HistoryContract):
    @pytest.fixture
    def api(self):
        return FakeKubeApi(clock=SystemClock())


class TestHttpKubeApi(KubeApiContract, HistoryContract):
    @pytest.fixture
    async def api(self, authority):
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        authority.issue_cert("127.0.0.1").configure_cert(tls)
        server = FakeApiServer(FakeKubeApi(clock=SystemClock()), tls=tls, token="secret")
        await server.start()
        credentials = FileCredentials(token="secret", ca=authority.cert_pem.bytes())
        client = HttpKubeApi(ServerConfig(url=server.url, source=credentials), clock=SystemClock())
        yield client
        await client.close()
        await server.stop()
