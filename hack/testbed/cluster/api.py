"""The few questions that the test bed itself asks a lab's API server. Tests and the product use real clients."""

from __future__ import annotations

import base64
import json
import ssl
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

_TIMEOUT_S = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Api:
    """Blocking reads as one user; an unreachable server and a missing object both answer None."""

    server: str
    token: str
    trust: ssl.SSLContext

    @classmethod
    def from_kubeconfig(cls, path: Path) -> Self:
        """From a kubeconfig that `pki` wrote. Raises OSError when there is none."""
        config = json.loads(path.read_text())
        cluster = config["clusters"][0]["cluster"]
        authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
        return cls(
            server=cluster["server"],
            token=config["users"][0]["user"]["token"],
            trust=ssl.create_default_context(cadata=authority),
        )

    def ready(self) -> bool:
        """Whether the server says that it is ready."""
        return self._get("/readyz") == b"ok"

    def has_default_service_account(self) -> bool:
        """Without it no pod can be created; the controller manager makes it a moment after its start."""
        return self._get("/api/v1/namespaces/default/serviceaccounts/default") is not None

    def ready_nodes(self) -> set[str]:
        """Names of nodes whose condition Ready is True."""
        answer = self._get("/api/v1/nodes")
        return {node["metadata"]["name"] for node in json.loads(answer)["items"] if _is_ready(node)} if answer else set()

    def boot_id(self, node: str) -> str | None:
        """The boot that the node's kubelet last reported."""
        answer = self._get(f"/api/v1/nodes/{node}")
        boot_id: str | None = json.loads(answer)["status"]["nodeInfo"]["bootID"] if answer else None
        return boot_id

    def _get(self, path: str) -> bytes | None:
        request = urllib.request.Request(self.server + path, headers={"Authorization": f"Bearer {self.token}"})
        # A proxy of the person's environment knows nothing of the lab's addresses.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=self.trust))
        try:
            with opener.open(request, timeout=_TIMEOUT_S) as response:
                body: bytes = response.read()
                return body
        except (urllib.error.URLError, OSError):
            return None


def _is_ready(node: dict[str, Any]) -> bool:
    return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in node["status"].get("conditions", []))
