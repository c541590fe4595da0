"""A kubeconfig gives the server and the user, or one line that says what is wrong with it."""

import base64
import json
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from gpu_dra.core.errors import Refused
from gpu_dra.kube.kubeconfig import load_kubeconfig, server_for_daemon


def config(*, cluster=None, user=None, **changes):
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": "https://10.0.0.1:6443/"} | (cluster or {})}],
        "users": [{"name": "u", "user": user or {}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    } | changes


@pytest.fixture
def write(tmp_path):
    def write(document, name="config"):
        path = tmp_path / name
        path.write_text(document if isinstance(document, str) else yaml.safe_dump(document))
        return path

    return write


def test_a_token_and_a_ca_beside_the_file_are_found(write, tmp_path):
    (tmp_path / "ca.crt").write_bytes(b"PEM")
    server = load_kubeconfig(write(config(cluster={"certificate-authority": "ca.crt"}, user={"token": "t"})))
    credentials = server.source.load(rejected=False)
    assert server.url == "https://10.0.0.1:6443"
    assert (credentials.authorization, credentials.ca) == ("Bearer t", b"PEM")


def test_embedded_data_wins_over_a_file(write):
    user = {"client-certificate-data": _base64(b"cert"), "client-certificate": "missing", "client-key-data": _base64(b"key")}
    certificate = load_kubeconfig(write(config(user=user))).source.load(rejected=False).client_certificate
    assert (certificate.certificate, certificate.key) == (b"cert", b"key")


def test_a_token_file_is_read_anew_each_time(write, tmp_path):
    (tmp_path / "token").write_text("first")
    source = load_kubeconfig(write(config(user={"tokenFile": "token"}))).source
    (tmp_path / "token").write_text("second")
    assert source.load(rejected=False).authorization == "Bearer second"


def test_how_the_server_is_checked_and_reached_is_taken_over(write):
    cluster = {"insecure-skip-tls-verify": True, "tls-server-name": "kubernetes", "proxy-url": "http://proxy:3128"}
    server = load_kubeconfig(write(config(cluster=cluster)))
    assert (server.verify, server.tls_server_name, server.proxy) == (False, "kubernetes", "http://proxy:3128")


def test_json_is_read_too(write):
    assert load_kubeconfig(write(json.dumps(config()))).url == "https://10.0.0.1:6443"


@pytest.mark.parametrize(
    ("document", "fact"),
    [
        (config(**{"current-context": ""}), "no current-context; run kubectl config use-context"),
        (config(**{"current-context": "z"}), "no context named 'z'"),
        (config(clusters=[]), "no cluster named 'c'"),
        (config(users=None), "no user named 'u'"),
        (config(clusters=[{"name": "c", "cluster": {}}]), "server is missing"),
        (config(cluster={"server": "10.0.0.1:6443"}), "10.0.0.1:6443 is no URL; write https://"),
        (config(user={"client-key-data": "a2V5"}), "belong together"),
        (config(user={"client-key-data": "%", "client-certificate-data": "a2V5"}), "client-key-data is not base64"),
        (config(user={"as": "root"}), "as is not supported"),
        ("kind: Pod", "kind Config expected"),
        ("a: [", "not a kubeconfig"),
        ("just words", "kind Config expected"),
    ],
)
def test_what_is_wrong_is_said_in_one_line_that_names_the_file(write, document, fact):
    path = write(document)
    with pytest.raises(Refused, match=fact) as caught:
        load_kubeconfig(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(Refused, match=r"config: cannot read this kubeconfig: No such file.*--kubeconfig"):
        server_for_daemon(tmp_path / "config", {})


def test_a_daemon_takes_no_kubeconfig_that_happens_to_lie_around(write, tmp_path):
    """A node plugin started by hand must not publish its GPUs to somebody's production cluster."""
    path = write(config())
    with pytest.raises(Refused, match="not in a cluster"):
        server_for_daemon(None, {"KUBECONFIG": str(path), "HOME": str(tmp_path)})


@pytest.fixture
def plugin(tmp_path):
    """An exec plug-in whose tokens are numbered."""
    path = tmp_path / "plugin"
    path.write_text(f"""#!{sys.executable}
import json, pathlib
count = pathlib.Path({str(tmp_path / "count")!r})
number = int(count.read_text()) + 1 if count.exists() else 1
count.write_text(str(number))
print(json.dumps({{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",
                  "status": {{"token": f"token-{{number}}"}}}}))
""")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def exec_user(command):
    return {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": str(command), "interactiveMode": "Never"}}


def test_an_exec_plugin_gives_the_token_and_is_run_again_only_when_it_was_rejected(write, plugin):
    source = load_kubeconfig(write(config(user=exec_user(plugin)))).source
    tokens = [source.load(rejected=rejected).authorization for rejected in (False, False, True)]
    assert tokens == ["Bearer token-1", "Bearer token-1", "Bearer token-2"]


def test_an_exec_plugin_that_fails_is_named_as_the_reason(write, tmp_path, caplog):
    path = write(config(user=exec_user(tmp_path / "missing")))
    with pytest.raises(Refused, match="exec plug-in"):
        load_kubeconfig(path).source.load(rejected=False)


def test_where_the_official_client_is_left_out_the_way_out_is_told(write, plugin, monkeypatch):
    """The container image leaves it out."""
    monkeypatch.delitem(sys.modules, "gpu_dra.kube.kubeconfig_official", raising=False)
    monkeypatch.setitem(sys.modules, "kubernetes.client", None)
    path = write(config(user=exec_user(plugin)))
    with pytest.raises(Refused, match="outside of the container") as refused:
        load_kubeconfig(path)
    assert "kubernetes" in str(refused.value)
    assert str(path) in str(refused.value)


def test_a_static_kubeconfig_does_not_load_the_official_client(write):
    """It costs a node process 20 MiB."""
    program = (
        "import pathlib, sys; from gpu_dra.kube.kubeconfig import load_kubeconfig;"
        f"load_kubeconfig(pathlib.Path({str(write(config(user={'token': 't'})))!r})); sys.exit('kubernetes' in sys.modules)"
    )
    source = Path(__file__).parents[3] / "src"
    assert subprocess.run([sys.executable, "-c", program], cwd=source, check=False).returncode == 0


def _base64(data):
    return base64.b64encode(data).decode()
