"""Credentials are found, renewed under a running process, and their absence is said in one line."""

import ssl

import pytest
import trustme

from gpu_dra.core.clock import FakeClock
from gpu_dra.core.errors import Refused
from gpu_dra.kube.auth import ClientCertificate, Credentials, FileCredentials, Renewing, TlsIdentity, in_cluster


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def service_account(tmp_path):
    (tmp_path / "token").write_text("first\n")
    (tmp_path / "ca.crt").write_bytes(trustme.CA().cert_pem.bytes())
    return tmp_path


POD = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "443"}


def test_a_pod_finds_its_api_server_and_its_token(service_account):
    server = in_cluster(POD, directory=service_account)
    credentials = server.source.load(rejected=False)
    assert server.url == "https://10.96.0.1:443"
    assert credentials.authorization == "Bearer first"
    assert credentials.ca == (service_account / "ca.crt").read_bytes()


def test_an_ipv6_service_address_is_put_in_brackets(service_account):
    assert in_cluster(POD | {"KUBERNETES_SERVICE_HOST": "fd00::1"}, directory=service_account).url == "https://[fd00::1]:443"


def test_outside_of_a_cluster_the_way_out_is_named(service_account):
    with pytest.raises(Refused, match=r"not in a cluster.*--kubeconfig"):
        in_cluster({}, directory=service_account)


def test_a_pod_without_a_token_is_told_what_to_set(tmp_path):
    with pytest.raises(Refused, match="automountServiceAccountToken"):
        in_cluster(POD, directory=tmp_path)


async def test_a_token_is_read_again_after_a_minute(service_account, clock):
    renewing = Renewing(in_cluster(POD, directory=service_account).source, clock=clock)
    await renewing.current()
    (service_account / "token").write_text("second")
    early = await renewing.current()
    await clock.advance(61)
    late = await renewing.current()
    assert (early.authorization, late.authorization) == ("Bearer first", "Bearer second")


async def test_a_rejected_token_is_read_again_at_once(service_account, clock):
    renewing = Renewing(in_cluster(POD, directory=service_account).source, clock=clock)
    old = await renewing.current()
    (service_account / "token").write_text("second")
    assert (await renewing.after_rejection(old)).authorization == "Bearer second"


async def test_a_caller_who_was_rejected_with_an_older_token_gets_the_one_already_renewed(service_account, clock):
    """Twenty requests that fail together must not start an exec plug-in twenty times."""
    renewing = Renewing(in_cluster(POD, directory=service_account).source, clock=clock)
    old = await renewing.current()
    (service_account / "token").write_text("second")
    renewed = await renewing.after_rejection(old)
    (service_account / "token").write_text("third")
    assert await renewing.after_rejection(old) is renewed


async def test_the_last_token_stays_in_use_while_the_file_is_away(service_account, clock):
    renewing = Renewing(in_cluster(POD, directory=service_account).source, clock=clock)
    await renewing.current()
    (service_account / "token").unlink()
    await clock.advance(61)
    assert (await renewing.current()).authorization == "Bearer first"


async def test_credentials_that_were_never_readable_are_refused_with_the_file(tmp_path, clock):
    renewing = Renewing(FileCredentials(token_file=tmp_path / "token"), clock=clock)
    with pytest.raises(Refused, match="token: cannot read these credentials: No such file"):
        await renewing.current()


def test_tls_follows_a_new_ca_and_a_new_client_certificate():
    identity = TlsIdentity(verify=True)
    for _ in range(2):
        authority = trustme.CA()
        certificate = authority.issue_cert("client")
        own = ClientCertificate(certificate=certificate.cert_chain_pems[0].bytes(), key=certificate.private_key_pem.bytes())
        identity.follow(Credentials(ca=authority.cert_pem.bytes(), client_certificate=own))
    assert len(identity.context.get_ca_certs()) == 2


def test_without_verification_any_certificate_is_taken():
    assert TlsIdentity(verify=False).context.verify_mode is ssl.CERT_NONE


def test_a_ca_bundle_that_is_no_pem_is_refused():
    with pytest.raises(Refused, match="not valid PEM"):
        TlsIdentity(verify=True).follow(Credentials(ca=b"nonsense"))


def test_secrets_do_not_show_in_logs():
    shown = repr(Credentials(authorization="Bearer secret", client_certificate=ClientCertificate(certificate=b"c", key=b"secret")))
    shown += repr(FileCredentials(token="secret", key=b"secret"))
    assert "secret" not in shown
