"""A lab as the cluster tests use it: manifests in, conditions awaited, pods judged by what they see."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from hack.demo import report
from hack.testbed.cluster.errors import LabError

if TYPE_CHECKING:
    from hack.testbed.cluster.lab import Lab
    from hack.testbed.driver import Driver

DEMO = Path(__file__).resolve().parents[2] / "demo"
Object = dict[str, Any]
RETRY = 180.0
"""Seconds for a pod whose first prepare the API server refused: the kubelet may ask for a claim before the Node authorizer knows that its
pod is there ("forbidden: no relationship found"), and tries again after a minute or more. Nothing of ours has been asked by then."""
PLUGIN_DIRECTORY = "/var/lib/kubelet/plugins/gpu.nvidia.com"


@dataclass(frozen=True)
class Cluster:
    """A running lab with the driver on its nodes."""

    lab: Lab
    drivers: dict[str, Driver]

    def items(self, kind: str) -> list[Object]:
        """All objects of a kind, in the default namespace or of the cluster."""
        found: list[Object] = json.loads(self.lab.kubectl("get", kind, "-o", "json"))["items"]
        return found

    def get(self, kind: str, name: str) -> Object | None:
        """One object; None when there is none."""
        try:
            found: Object = json.loads(self.lab.kubectl("get", kind, name, "-o", "json"))
        except LabError:
            return None
        return found

    def apply(self, *objects: Object) -> None:
        """Create objects."""
        self.lab.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(objects))

    def demo(self, name: str, *, node: str | None = None, pod_name: str | None = None) -> str:
        """Apply a sample manifest, its pod renamed or pinned to a node where wanted; returns the pod's name."""
        objects = list(yaml.safe_load_all((DEMO / f"{name}.yaml").read_text()))
        pod = next(each for each in objects if each["kind"] == "Pod")
        pod["metadata"]["name"] = pod_name or pod["metadata"]["name"]
        if node:
            pod["spec"]["nodeSelector"] = {"kubernetes.io/hostname": node}
        self.apply(*objects)
        return str(pod["metadata"]["name"])

    def wait(self, what: str, condition: Callable[[], Any], *, within: float = 60.0) -> Any:
        """Poll until the condition gives something true, and return that; on time-out fail with what a person would look at."""
        end = time.monotonic() + within
        while not (result := condition()):
            if time.monotonic() > end:
                raise AssertionError(f"{what} did not happen within {within:g} s\n{self.evidence()}")
            time.sleep(0.1)
        return result

    def running(self, pod: str, *, within: float = RETRY) -> Object:
        """Wait for a pod to run and be ready."""
        return self.wait(f"pod {pod} running", lambda: _ready(self.get("pod", pod)), within=within)

    def gone(self, pod: str, *, within: float = 60.0) -> None:
        """Wait until a pod's object is gone."""
        self.wait(f"pod {pod} gone", lambda: self.get("pod", pod) is None, within=within)

    def delete(self, pod: str, *flags: str) -> None:
        """Delete a pod without waiting."""
        self.lab.kubectl("delete", "pod", pod, "--wait=false", *flags)

    def sees_exactly_its_claim(self, pod: str) -> None:
        """Compare `nvidia-smi -L` inside each container, run anew, with the pod's allocation."""
        found = self.running(pod)
        for container in found["spec"]["containers"]:
            output = self.lab.kubectl("exec", pod, "-c", container["name"], "--", "nvidia-smi", "-L")
            row = report.row(found, output, self.allocated(pod))
            assert row.right, f"{pod}/{container['name']} {row.verdict()}:\n{output}"

    def allocated(self, pod: str) -> list[report.Device]:
        """The devices of a pod's claims."""
        devices = report.published_devices(self.slices())
        claims = [self.get("resourceclaim", name) for name in report.claims_of(self.get("pod", pod) or {"spec": {}})]
        return [device for claim in claims if claim for device in report.allocated_devices(claim, devices)]

    def slices(self) -> list[Object]:
        """All ResourceSlices."""
        return self.items("resourceslices")

    def slice_of(self, node: str) -> Object | None:
        """The slice of a node that has devices; the nodes here need one each."""
        return next((s for s in self.slices() if s["spec"]["nodeName"] == node and s["spec"].get("devices")), None)

    def wait_for_slices(self, nodes: Iterable[str] = (), *, within: float = 60.0) -> None:
        """Wait until every node offers devices."""
        wanted = set(nodes) or set(self.drivers)
        self.wait(f"slices of {', '.join(sorted(wanted))}", lambda: all(self.slice_of(node) for node in wanted), within=within)

    def node_files(self, node: str, directory: str) -> list[str]:
        """Names in a directory of a node; none when it is not there."""
        return sorted(self.lab.node_exec(node, "ls", directory).stdout.split())

    def held(self, node: str) -> tuple[list[str], list[str]]:
        """Journal and CDI files of a node: both empty when nothing is prepared there."""
        journal = [name for name in self.node_files(node, f"{PLUGIN_DIRECTORY}/claims") if name.endswith(".json")]
        specs = [name for name in self.node_files(node, "/var/run/cdi") if name.startswith("k8s.gpu.nvidia.com-claim_")]
        return journal, specs

    def clean(self) -> None:
        """No pods, no claims; what a test forced out of the API is forgotten by the nodes."""
        self.lab.kubectl("delete", "pods,resourceclaims,resourceclaimtemplates", "--all", "--wait=false", "--grace-period=1")
        self.wait("an empty namespace", lambda: not self.items("pods") and not self.items("resourceclaims"), within=90)

    def start_driver(self, node: str) -> None:
        """Start it and wait until the kubelet has registered it: a pod that comes earlier is tried again by the kubelet a minute later."""
        driver = self.drivers[node]
        before = len(driver.log.read_text()) if driver.log.exists() else 0
        driver.start()
        self.wait("registration", lambda: "kubelet registered the plugin" in driver.log.read_text()[before:], within=30)

    def recover(self) -> None:
        """Drivers that a test stopped run again, and every node offers devices."""
        for node, driver in self.drivers.items():
            if driver.process is None:
                self.start_driver(node)
        self.wait_for_slices()

    def evidence(self) -> str:
        """Pods, events, and the ends of the drivers' logs."""
        parts = [self.lab.kubectl("get", "pods,resourceclaims", "-o", "wide")]
        parts.append("\n".join(self.lab.kubectl("get", "events", "--sort-by=.lastTimestamp").splitlines()[-12:]))
        for node, driver in self.drivers.items():
            log = driver.log.read_text(errors="replace").splitlines() if driver.log.exists() else []
            parts.append(f"driver of {node}:\n" + "\n".join(log[-15:]))
        return "\n\n".join(parts)


def _ready(pod: Object | None) -> Object | None:
    if pod is None or pod["status"].get("phase") != "Running":
        return None
    return pod if all(status["ready"] for status in pod["status"].get("containerStatuses", ())) else None
