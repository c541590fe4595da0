"""Who we are to the API server, and how we know that it is the API server.

Sources: in-cluster files of the service account (bound tokens live about an hour and are replaced under us, the CA bundle too); for
kubeconfigs see `kube.kubeconfig`. Errors about what a person configured are `Refused` in one line. Reading blocks (files, exec
plug-ins), so `Renewing` does it in a thread and never on the event loop.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from gpu_dra.core.errors import Refused

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpu_dra.core.clock import Clock

log = logging.getLogger(__name__)

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where the kubelet mounts a pod's token and CA bundle (Kubernetes documentation, "Accessing the API from a Pod")."""

MAX_AGE_SECONDS = 60.0
"""Re-read files this often: the official client's minute. The kubelet renews a token at 80 % of its life, so this is never late."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientCertificate:
    """A certificate and its private key, both PEM."""

    certificate: bytes
    key: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """What is presented now, and which CAs vouch for the server (PEM; None: the system's)."""

    authorization: str | None = field(default=None, repr=False)
    client_certificate: ClientCertificate | None = None
    ca: bytes | None = None


class CredentialSource(Protocol):
    """Where credentials come from. Blocking."""

    def load(self, *, rejected: bool) -> Credentials:
        """The credentials as they are now; `rejected` says that the server did not take the last ones. Raises Refused."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    """Where the API server is, with what to check it, and where our credentials come from."""

    url: str
    source: CredentialSource
    verify: bool = True
    tls_server_name: str | None = None
    proxy: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FileCredentials:
    """Credentials that lie in files or are fixed; files are read anew by every `load`, since they are replaced under us."""

    token: str | None = field(default=None, repr=False)
    token_file: Path | None = None
    certificate: bytes | Path | None = None
    key: bytes | Path | None = field(default=None, repr=False)
    ca: bytes | Path | None = None

    def load(self, *, rejected: bool) -> Credentials:
        """Read what is in files, `rejected` or not. Raises Refused with the file that cannot be read."""
        token = self.token
        if self.token_file is not None:
            token = _read(self.token_file).decode().strip()
        certificate = None
        if self.certificate is not None and self.key is not None:
            certificate = ClientCertificate(certificate=_content(self.certificate), key=_content(self.key))
        return Credentials(
            authorization=f"Bearer {token}" if token else None,
            client_certificate=certificate,
            ca=None if self.ca is None else _content(self.ca),
        )


class Renewing:
    """Credentials that are read again once a minute, and at once when the server rejected them."""

    def __init__(self, source: CredentialSource, *, clock: Clock) -> None:
        self._source = source
        self._clock = clock
        self._lock = asyncio.Lock()
        self._credentials: Credentials | None = None
        self._due = 0.0

    async def current(self) -> Credentials:
        """What to present now. Raises Refused when nothing was ever readable; afterwards the last good ones go on."""
        if self._credentials is not None and self._clock.monotonic() < self._due:
            return self._credentials
        return await self._renew(seen=self._credentials, rejected=False)

    async def after_rejection(self, rejected: Credentials) -> Credentials:
        """Read again because the server answered 401 to `rejected`; callers that come late share the first one's result."""
        return await self._renew(seen=rejected, rejected=True)

    async def _renew(self, *, seen: Credentials | None, rejected: bool) -> Credentials:
        async with self._lock:
            if self._credentials is not None and self._credentials is not seen:
                return self._credentials
            self._due = self._clock.monotonic() + MAX_AGE_SECONDS
            try:
                self._credentials = await asyncio.to_thread(self._source.load, rejected=rejected)
            except Refused as error:
                if self._credentials is None:
                    self._due = 0.0
                    raise
                log.warning("credentials could not be read again, the last ones stay in use", extra={"error": str(error)})
            return self._credentials


class TlsIdentity:
    """One SSLContext for the process's life that follows the credentials: a new CA is added, a new client certificate replaces the old."""

    def __init__(self, *, verify: bool) -> None:
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        if not verify:
            self.context.check_hostname = False
            self.context.verify_mode = ssl.CERT_NONE
        self._ca: bytes | None = None
        self._system_cas_loaded = False
        self._certificate: ClientCertificate | None = None

    def follow(self, credentials: Credentials) -> None:
        """Make new connections use `credentials`. Raises Refused when they are no PEM."""
        try:
            if credentials.ca is not None and credentials.ca != self._ca:
                self.context.load_verify_locations(cadata=credentials.ca.decode())
                self._ca = credentials.ca
            elif credentials.ca is None and not self._system_cas_loaded:
                self.context.load_default_certs()
                self._system_cas_loaded = True
            if credentials.client_certificate is not None and credentials.client_certificate != self._certificate:
                self._present(credentials.client_certificate)
        except (ssl.SSLError, ValueError) as error:
            raise Refused(f"the CA bundle or client certificate is not valid PEM: {error}; check the kubeconfig") from error

    def _present(self, certificate: ClientCertificate) -> None:
        """OpenSSL reads certificates from files only, so they lie in one of mode 0600 for that moment."""
        with tempfile.NamedTemporaryFile(prefix="gpu-dra-") as file:
            file.write(certificate.certificate.rstrip() + b"\n" + certificate.key)
            file.flush()
            self.context.load_cert_chain(file.name)
        self._certificate = certificate


def in_cluster(environment: Mapping[str, str], *, directory: Path = SERVICE_ACCOUNT) -> ServerConfig:
    """The API server of the pod we run in. Raises Refused when we do not run in one."""
    host, port = environment.get("KUBERNETES_SERVICE_HOST"), environment.get("KUBERNETES_SERVICE_PORT")
    if not host or not port:
        raise Refused("not in a cluster (KUBERNETES_SERVICE_HOST is not set); name one with --kubeconfig FILE")
    token = directory / "token"
    if not token.is_file():
        raise Refused(f"{token}: no service-account token; set automountServiceAccountToken: true, or use --kubeconfig FILE")
    address = f"[{host}]" if ":" in host else host
    return ServerConfig(url=f"https://{address}:{port}", source=FileCredentials(token_file=token, ca=directory / "ca.crt"))


def _content(value: bytes | Path) -> bytes:
    return _read(value) if isinstance(value, Path) else value


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise Refused(f"{path}: cannot read these credentials: {error.strerror}") from error
