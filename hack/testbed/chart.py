"""The product in a lab as a person installs it: the image on every node, the chart by Helm.

chart = Chart(lab=lab)
chart.load_image(say=say)             # once; and again when a node was added
chart.install()                       # helm upgrade --install --wait
chart.pods("node")
"""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hack.container import build
from hack.testbed.cluster.errors import LabError
from hack.testbed.mock_host import DRIVER_ROOT

if TYPE_CHECKING:
    from hack.testbed.cluster.errors import Say
    from hack.testbed.cluster.lab import Lab

CHART = Path(__file__).resolve().parents[2] / "helm/gpu-dra"
NAMESPACE = "gpu-dra"
RELEASE = "gpu-dra"
LAB_VALUES = {"node.driverRoot": str(DRIVER_ROOT), "image.pullPolicy": "Never"}
"""What a lab differs in from a common machine: where its driver lies, and that no registry can be reached."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """One release in one lab."""

    lab: Lab

    def load_image(self, *, say: Say, tag: str | None = None) -> None:
        """Build the image (or find it built) and put it on every node. Raises LabError."""
        self.lab.load_image(build.image(tag=tag, say=say).archive)

    def helm(self, *arguments: str) -> str:
        """Run helm as administrator; its output. Raises LabError with everything it said."""
        command = [self.lab.toolbox["helm"], "--kubeconfig", str(self.lab.kubeconfig), "--namespace", NAMESPACE, *arguments]
        environment = {**self.lab.toolbox.environment, "HOME": str(self.lab.folder.path)}  # nothing of the person's own helm
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
        if done.returncode != 0:
            raise LabError(f"helm {arguments[0]} failed: {(done.stdout + done.stderr).strip()}")
        return done.stdout + done.stderr

    def install(self, *, timeout: int = 120, chart: Path = CHART, **values: str) -> str:
        """Install, or upgrade what is installed, and wait until it is there; `values` with `__` for the dots. Raises LabError."""
        wanted = {**LAB_VALUES, **{key.replace("__", "."): value for key, value in values.items()}}
        flags = [word for key, value in wanted.items() for word in ("--set", f"{key}={value}")]
        return self.helm(
            "upgrade", "--install", RELEASE, str(chart), "--create-namespace", "--wait", "--timeout", f"{timeout}s", *flags
        )

    def uninstall(self, *flags: str, timeout: int = 180) -> str:
        """Uninstall and wait. Raises LabError with what the hook said."""
        return self.helm("uninstall", RELEASE, "--wait", "--timeout", f"{timeout}s", *flags)

    def pods(self, component: str, *, node: str | None = None) -> list[dict[str, Any]]:
        """The pods of one component, on one node or on all."""
        selector = f"app.kubernetes.io/component={component}"
        fields = [f"--field-selector=spec.nodeName={node}"] if node else []
        found = self.lab.kubectl("-n", NAMESPACE, "get", "pods", "-l", selector, *fields, "-o", "json")
        pods: list[dict[str, Any]] = json.loads(found)["items"]
        return pods

    def logs(self, component: str, *, tail: int = 40) -> str:
        """The ends of their logs, each line with its pod; a pod that has not started yet has none."""
        begun = [pod["metadata"]["name"] for pod in self.pods(component) if _has_begun(pod)]
        return "".join(self.lab.kubectl("-n", NAMESPACE, "logs", name, "--prefix", f"--tail={tail}") for name in begun)


def _has_begun(pod: dict[str, Any]) -> bool:
    statuses = pod["status"].get("containerStatuses", ())
    return bool(statuses) and all("waiting" not in status["state"] or status["restartCount"] for status in statuses)
