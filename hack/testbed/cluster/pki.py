"""Certificates, keys, tokens and kubeconfigs of a lab. Made once per lab, by openssl, valid for a year, of use to nobody else.

People and components sign in with bearer tokens, which the API server reads from a file: as real for its authorizers as client
certificates, and easy to use from curl.
"""

from __future__ import annotations

import base64
import json
import secrets
from dataclasses import dataclass
from pathlib import Path

from hack.testbed.cluster.addresses import API_SERVICE_ADDRESS, Addresses
from hack.testbed.cluster.commands import run
from hack.testbed.cluster.folder import LabFolder, LabState

_DAYS = "365"
_CURVE = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")  # a hundred times faster to make than RSA


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """Who signs in to the API server."""

    file: str
    """Name of the kubeconfig."""
    name: str
    groups: tuple[str, ...] = ()


ADMIN = User(file="admin", name="admin", groups=("system:masters",))
SCHEDULER = User(file="scheduler", name="system:kube-scheduler")
CONTROLLER_MANAGER = User(file="controller-manager", name="system:kube-controller-manager")
PROXY = User(file="proxy", name="system:kube-proxy")


def kubelet_user(node: str) -> User:
    """The identity that the Node authorizer limits to its own node."""
    return User(file=f"kubelet-{node}", name=f"system:node:{node}", groups=("system:nodes",))


def ensure(folder: LabFolder, state: LabState) -> None:
    """Make whatever is missing; a complete set is left alone, since running components have read it. Raises LabError."""
    complete = folder.pki / "complete"
    if complete.exists():
        return
    folder.pki.mkdir(mode=0o700, exist_ok=True)
    folder.kubeconfig("").mkdir(mode=0o700, exist_ok=True)
    _authority(folder.pki)
    _certificate(folder.pki, "apiserver", "/CN=kube-apiserver", _server_names(state.addresses))
    nodes = range(1, len(state.spec.nodes) + 1)
    _certificate(folder.pki, "kubelet", "/CN=kubelet", [f"IP:{state.addresses.node(ordinal)}" for ordinal in nodes])
    _certificate(folder.pki, "kubelet-client", f"/O={ADMIN.groups[0]}/CN=kube-apiserver-kubelet-client", ["DNS:apiserver"])
    _service_account_keys(folder.pki)
    _sign_ins(folder, state)
    complete.touch()


def _authority(pki: Path) -> None:
    # Python 3.13 refuses an authority that does not say what its key is for.
    usage = ("-addext", "keyUsage=critical,keyCertSign,cRLSign")
    files = ("-keyout", f"{pki}/ca.key", "-out", f"{pki}/ca.crt")
    run("openssl", "req", "-x509", *_CURVE, "-days", _DAYS, "-subj", "/CN=gpu-dra-lab", *usage, *files)


def _server_names(addresses: Addresses) -> list[str]:
    services = ("kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local", "localhost")
    return [f"IP:{addresses.gateway}", f"IP:{API_SERVICE_ADDRESS}", "IP:127.0.0.1", *(f"DNS:{name}" for name in services)]


def _certificate(pki: Path, name: str, subject: str, alternatives: list[str]) -> None:
    request = ("openssl", "req", *_CURVE, "-subj", subject, "-keyout", f"{pki}/{name}.key", "-out", f"{pki}/{name}.csr")
    run(*request)
    extensions = pki / f"{name}.ext"
    extensions.write_text(
        f"subjectAltName={','.join(alternatives)}\nextendedKeyUsage=serverAuth,clientAuth\n"
        "subjectKeyIdentifier=hash\nauthorityKeyIdentifier=keyid\n"
    )
    signing = ("-CA", f"{pki}/ca.crt", "-CAkey", f"{pki}/ca.key", "-CAcreateserial", "-days", _DAYS, "-extfile", str(extensions))
    run("openssl", "x509", "-req", "-in", f"{pki}/{name}.csr", *signing, "-out", f"{pki}/{name}.crt")


def _service_account_keys(pki: Path) -> None:
    run("openssl", "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", f"{pki}/service-account.key")
    run("openssl", "ec", "-in", f"{pki}/service-account.key", "-pubout", "-out", f"{pki}/service-account.pub")


def _sign_ins(folder: LabFolder, state: LabState) -> None:
    users = [ADMIN, SCHEDULER, CONTROLLER_MANAGER, PROXY, *(kubelet_user(node.name) for node in state.spec.nodes)]
    server = f"https://{state.addresses.gateway}:6443"
    authority = (folder.pki / "ca.crt").read_bytes()
    lines = []
    for user in users:
        token = secrets.token_urlsafe(24)
        lines.append(f'{token},{user.name},{user.file},"{",".join(user.groups)}"')
        kubeconfig = folder.kubeconfig(user.file)
        kubeconfig.touch(mode=0o600)
        kubeconfig.write_text(kubeconfig_text(server=server, authority=authority, user=user.name, token=token))
    tokens = folder.pki / "tokens.csv"
    tokens.touch(mode=0o600)
    tokens.write_text("\n".join(lines) + "\n")


def kubeconfig_text(*, server: str, authority: bytes, user: str, token: str) -> str:
    """A kubeconfig that needs no other file. JSON, which is YAML."""
    cluster = {"server": server, "certificate-authority-data": base64.b64encode(authority).decode()}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "lab", "cluster": cluster}],
        "users": [{"name": user, "user": {"token": token}}],
        "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": user}}],
        "current-context": "lab",
    }
    return json.dumps(config, indent=2) + "\n"
