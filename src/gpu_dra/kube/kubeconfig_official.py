"""Kubeconfigs whose users need code: exec plug-ins and auth providers. By the official `kubernetes` client.

The only module that imports it outside of tests; `kube.kubeconfig` imports this one when it must. Not for the node daemon's memory.
"""

from __future__ import annotations

from pathlib import Path

from kubernetes.client import Configuration
from kubernetes.config import ConfigException, load_kube_config

from gpu_dra.core.errors import Refused
from gpu_dra.kube.auth import ClientCertificate, Credentials, ServerConfig


class OfficialCredentials:
    """Credentials that the official loader obtains; it runs the plug-in again when they expired, and we do when they were rejected."""

    def __init__(self, path: str, context: str) -> None:
        self._path = path
        self._context = context
        self.configuration = self._configure()

    def load(self, *, rejected: bool) -> Credentials:
        """Raises Refused when the plug-in gave nothing. Blocking: may start a program or call an identity provider."""
        if rejected:
            self.configuration = self._configure()
        try:
            authorization = self.configuration.get_api_key_with_prefix("BearerToken")
        except Exception as error:  # the loader lets through whatever the plug-in's library raises
            raise Refused(f"{self._path}: the user's credentials cannot be obtained: {error}") from error
        certificate = self._certificate()
        if authorization is None and certificate is None:
            raise Refused(f"{self._path}: the user's exec plug-in or auth provider gave no credentials; run it by hand to see why")
        ca = self.configuration.ssl_ca_cert
        return Credentials(
            authorization=authorization,
            client_certificate=certificate,
            ca=Path(ca).read_bytes() if ca else None,
        )

    def _certificate(self) -> ClientCertificate | None:
        if not (self.configuration.cert_file and self.configuration.key_file):
            return None
        return ClientCertificate(
            certificate=Path(self.configuration.cert_file).read_bytes(),
            key=Path(self.configuration.key_file).read_bytes(),
        )

    def _configure(self) -> Configuration:
        configuration = Configuration(proxy="")  # "": only the file's proxy-url counts, not this process's environment
        try:
            load_kube_config(config_file=self._path, context=self._context, client_configuration=configuration)  # type: ignore[no-untyped-call]
        except (ConfigException, OSError, ValueError) as error:
            raise Refused(f"{self._path}: {' '.join(str(error).split())}") from error
        return configuration


def load(path: str, *, context: str) -> ServerConfig:
    """The server and user of `context`. Raises Refused. Blocking."""
    source = OfficialCredentials(path, context)
    configuration = source.configuration
    return ServerConfig(
        url=configuration.host.rstrip("/"),
        source=source,
        verify=bool(configuration.verify_ssl),
        tls_server_name=configuration.tls_server_name,
        proxy=configuration.proxy or None,
    )
