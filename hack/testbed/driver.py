"""The driver as a process on the nodes of a lab, with the rights its service account has and no others.

It runs from this checkout's `.venv`, inside the node's namespaces, so that every path is the one it would have on a real node.
"""

from __future__ import annotations

import json
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hack.testbed.cluster.host import PRODUCT_FLAGS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hack.testbed.cluster.lab import Lab
    from hack.testbed.cluster.processes import Process

ROOT = Path(__file__).resolve().parents[2]
HTTP_PORT = 8080
NAME = "driver"


def install(lab: Lab) -> None:
    """Classes, account and rights: what the driver needs in the cluster. Idempotent. Raises LabError."""
    for manifest in (Path(__file__).with_name("rbac.yaml"), ROOT / "deviceclasses"):
        lab.kubectl("apply", "-f", str(manifest))


@dataclass(frozen=True, slots=True, kw_only=True)
class Driver:
    """The driver of one node."""

    lab: Lab
    node: str
    name: str = NAME
    pod_uid: str = ""
    """Set to let a second one run beside the first, as in a rolling update."""

    @property
    def process(self) -> Process | None:
        """The running process; None when it does not run."""
        return self.lab.node(self.node).component(self.name)

    @property
    def log(self) -> Path:
        """Its log file, which grows over restarts."""
        return self.lab.folder.log(f"{self.node}.{self.name}")

    def start(self, *flags: str, http_port: int = HTTP_PORT) -> Process:
        """Start it; the caller waits for what it wants to see. Raises LabError."""
        return self.lab.start_in_node(self.node, self.name, self.command(*flags, http_port=http_port), log=self.log)

    def command(self, *flags: str, http_port: int = HTTP_PORT) -> Sequence[str]:
        """The command line, as run inside the node."""
        return (
            sys.executable,
            "-m",
            "gpu_dra",
            "node",
            *("--node-name", self.node),
            *("--kubeconfig", str(self._kubeconfig())),
            *PRODUCT_FLAGS,
            *("--http-endpoint", f"0.0.0.0:{http_port}"),
            *(("--pod-uid", self.pod_uid) if self.pod_uid else ()),
            *flags,
        )

    def stop(self) -> None:
        """SIGTERM, and wait for the end. Raises LabError when it does not run."""
        self.lab.stop_in_node(self.node, self.name)

    def kill(self) -> None:
        """SIGKILL."""
        self.lab.stop_in_node(self.node, self.name, number=signal.SIGKILL)

    def _kubeconfig(self) -> Path:
        """A kubeconfig of the service account, made once a node."""
        path = self.lab.folder.path / f"driver-{self.node}.kubeconfig"
        if not path.exists():
            token = self.lab.kubectl("-n", "gpu-dra", "create", "token", "gpu-dra-node", "--duration=48h").strip()
            config = self.lab.kubectl("config", "view", "--raw", "--flatten", "-o", "json")
            path.write_text(with_token(config, token))
            path.chmod(0o600)
        return path


def with_token(config: str, token: str) -> str:
    """The kubeconfig (JSON) with its users replaced by one that has `token`."""
    content = json.loads(config)
    for user in content["users"]:
        user["user"] = {"token": token}
    return json.dumps(content)
