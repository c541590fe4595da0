"""A kubeconfig → where the API server is and who we are.

Static files (a server, a CA, a token or a certificate) are read here, because importing the official client costs a node process
20 MiB and more. What needs code of its own (exec plug-ins, auth providers) goes through the official
`kubernetes` client, in `kube.kubeconfig_official`, imported only then. Source: `clientcmd/api/v1` types.
Every error is `Refused` in one line that names the file.
"""

from __future__ import annotations

import base64
import binascii
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpu_dra.core.errors import Refused
from gpu_dra.kube.auth import FileCredentials, ServerConfig, in_cluster

if TYPE_CHECKING:
    from collections.abc import Mapping

NEEDS_OFFICIAL_CLIENT = frozenset({"exec", "auth-provider", "username", "password"})
"""Keys of a user entry that this module does not handle itself."""

NOT_SUPPORTED = frozenset({"as", "as-uid", "as-groups", "as-user-extra"})
"""Impersonation; the official Python client ignores it, and acting as somebody else than was asked for is worse than refusing."""


def server_for_daemon(kubeconfig: Path | None, environment: Mapping[str, str]) -> ServerConfig:
    """`--kubeconfig` or the pod's own service account; never a file that happens to lie in somebody's home. Raises Refused."""
    return in_cluster(environment) if kubeconfig is None else load_kubeconfig(kubeconfig)


def load_kubeconfig(path: Path) -> ServerConfig:
    """The server and user of the file's current context. Raises Refused. Blocking."""
    document = _parse(path)
    name = document.get("current-context")
    if not name:
        raise Refused(f"{path}: no current-context; run kubectl config use-context NAME")
    chosen = _named(path, document, "context", name)
    cluster = _named(path, document, "cluster", _text(path, chosen, "cluster"))
    user = _named(path, document, "user", chosen["user"]) if chosen.get("user") else {}
    if impersonated := NOT_SUPPORTED & user.keys():
        raise Refused(f"{path}: user {chosen['user']}: {min(impersonated)} is not supported; use that user's own kubeconfig")
    if NEEDS_OFFICIAL_CLIENT & user.keys():
        return _official(str(path), name)
    return _static(path, cluster, user)


def _static(path: Path, cluster: dict[str, Any], user: dict[str, Any]) -> ServerConfig:
    token_file = user.get("tokenFile")
    source = FileCredentials(
        token=user.get("token"),
        token_file=path.parent / token_file if token_file else None,
        certificate=_file_or_data(path, user, "client-certificate"),
        key=_file_or_data(path, user, "client-key"),
        ca=_file_or_data(path, cluster, "certificate-authority"),
    )
    if (source.certificate is None) != (source.key is None):
        raise Refused(f"{path}: client-certificate and client-key belong together, and one of them is missing")
    url = _text(path, cluster, "server").rstrip("/")
    if not url.startswith(("https://", "http://")):
        raise Refused(f"{path}: server {url} is no URL; write https://HOST:PORT")
    return ServerConfig(
        url=url,
        source=source,
        verify=not cluster.get("insecure-skip-tls-verify", False),
        tls_server_name=cluster.get("tls-server-name"),
        proxy=cluster.get("proxy-url"),
    )


def _official(path: str, context: str) -> ServerConfig:
    try:
        from gpu_dra.kube.kubeconfig_official import load  # noqa: PLC0415 — 20 MiB, only for those who need it
    except ModuleNotFoundError as error:
        raise Refused(
            f"{path}: this needs the Python package {error.name}, which the container image leaves out;"
            " use a kubeconfig with a token or a client certificate, or run gpu-dra outside of the container"
        ) from error
    return load(path, context=context)


def _parse(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise Refused(f"{path}: cannot read this kubeconfig: {reason}; name another with --kubeconfig FILE") from error
    try:
        document = _yaml(text)
    except ValueError as error:
        raise Refused(f"{path}: not a kubeconfig: {' '.join(str(error).split())}") from error
    if not isinstance(document, dict) or document.get("kind", "Config") != "Config":
        raise Refused(f"{path}: not a kubeconfig: kind Config expected")
    return document


def _yaml(text: str) -> object:
    """JSON is YAML too. Raises ValueError."""
    import yaml  # noqa: PLC0415 — in a cluster there is no kubeconfig to parse

    try:
        return yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error


def _named(path: Path, document: dict[str, Any], kind: str, name: str) -> dict[str, Any]:
    """`{kind}s: [{name: …, {kind}: {…}}]`, as kubeconfigs hold their maps."""
    for entry in document.get(f"{kind}s") or []:
        if isinstance(entry, dict) and entry.get("name") == name:
            found = entry.get(kind) or {}
            if isinstance(found, dict):
                return found
    raise Refused(f"{path}: no {kind} named {name!r}")


def _text(path: Path, entry: dict[str, Any], key: str) -> str:
    value = entry.get(key)
    if not isinstance(value, str) or not value:
        raise Refused(f"{path}: {key} is missing")
    return value


def _file_or_data(path: Path, entry: dict[str, Any], key: str) -> bytes | Path | None:
    """`KEY-data` (base64) wins over `KEY` (a path relative to the kubeconfig), as in clientcmd."""
    if data := entry.get(f"{key}-data"):
        try:
            return base64.b64decode(data, validate=True)
        except (binascii.Error, ValueError, TypeError) as error:
            raise Refused(f"{path}: {key}-data is not base64: {error}") from error
    return path.parent / entry[key] if entry.get(key) else None
