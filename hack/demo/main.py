"""`make demo`: two nodes with mocked GPUs, the chart installed, sample pods, and a table of what each got.

Leaves everything running; `make demo-down` takes it away. Exit status 1 when a pod did not get exactly what its claim says.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from hack.demo import report
from hack.testbed.chart import Chart
from hack.testbed.cluster.catalog import DEFAULT_KUBERNETES, KUBERNETES_VERSIONS
from hack.testbed.cluster.errors import LabError, say_on_stderr
from hack.testbed.cluster.lab import Lab
from hack.testbed.cluster.spec import NodeSpec, Wishes
from hack.testbed.images import SAMPLE_REFERENCE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hack.testbed.cluster.errors import Say

NODES = (NodeSpec(name="node-a", profile="h100x8"), NodeSpec(name="node-b", profile="a100x8-p4d"))
SAMPLES = Path(__file__).resolve().parents[2] / "demo"
PARTITIONED = ("node-b", 7)
"""Which GPU is cut into MIG partitions, by index."""
PROFILE_IDS = (19, 19, 14, 9)
"""1g.5gb twice, 2g.10gb, 3g.20gb."""
PENDING = "no-such-model"
DEADLINE = 180.0
"""A pod whose claim the kubelet may not read yet is tried again by it after a minute or more."""


def main(arguments: Sequence[str] | None = None) -> int:
    """0 when every pod got its devices, 1 with one line when something failed."""
    parser = argparse.ArgumentParser(prog="make demo", description=__doc__)
    parser.add_argument("action", choices=("up", "show"))
    parser.add_argument("--name", default="demo", help="name of the lab (default demo)")
    parser.add_argument("--kubernetes", default=DEFAULT_KUBERNETES, choices=KUBERNETES_VERSIONS)
    options = parser.parse_args(arguments)
    try:
        lab = up(options.name, options.kubernetes, say=say_on_stderr) if options.action == "up" else Lab.open(options.name)
        return show(lab)
    except (LabError, OSError) as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1


def up(name: str, kubernetes: str, *, say: Say) -> Lab:
    """Lab, partitions, image, chart and sample pods; what is already there stays."""
    lab = Lab.up(Wishes(name=name, kubernetes=kubernetes, nodes=NODES), say=say)
    partition(lab)
    chart = Chart(lab=lab)
    chart.load_image(say=say)
    say("installing the chart helm/gpu-dra")
    chart.install()
    wait(
        "ResourceSlices of both nodes",
        lambda: {s["spec"]["nodeName"] for s in items(lab, "resourceslices")} >= {n.name for n in NODES},
    )
    say("applying the sample claims and pods of demo/")
    lab.kubectl("apply", "-f", str(SAMPLES))
    wait("the sample pods", lambda: len(found := samples(lab)) == len(sample_names()) and all(settled(pod) for pod in found))
    return lab


def sample_names() -> set[str]:
    """Names of the pods in `demo/`; a person's own pods beside them are none of the demo's business."""
    manifests = (each for path in sorted(SAMPLES.glob("*.yaml")) for each in yaml.safe_load_all(path.read_text()))
    return {each["metadata"]["name"] for each in manifests if each["kind"] == "Pod"}


def samples(lab: Lab) -> list[dict[str, Any]]:
    """The sample pods that are there and not on their way out."""
    names = sample_names()
    return [pod for pod in items(lab, "pods") if pod["metadata"]["name"] in names and "deletionTimestamp" not in pod["metadata"]]


def partition(lab: Lab) -> None:
    """What an administrator does with `nvidia-smi mig`, once."""
    node, gpu = PARTITIONED
    mock = lab.machine(node)
    if not mock.show()["gpus"][gpu]["mig_current"]:
        mock.mig_mode(gpu, enabled=True)
        for start, profile_id in zip((0, 1, 2, 4), PROFILE_IDS, strict=True):
            mock.partition(gpu, profile_id, start=start)


def show(lab: Lab) -> int:
    """Print the table and what a person can do next."""
    rows = compare(lab)
    print(as_table(rows))
    print(f"\n{PENDING} stays pending, as it should: {why_pending(lab, PENDING)}")
    print(
        f"\nLook around:  export KUBECONFIG={lab.kubeconfig}; {lab.toolbox['kubectl']} get pods,resourceclaims,resourceslices"
        f"\nHelm:         {lab.toolbox['helm']} --namespace gpu-dra status gpu-dra"
        f"\nYour pods:    image {SAMPLE_REFERENCE}, which has nothing but a shell and what the claim brings"
        f"\nTake it down: make demo-down"
    )
    return 0 if rows and all(row.right for row in rows) else 1


def compare(lab: Lab) -> list[report.Row]:
    """One row for each container of each running pod."""
    devices = report.published_devices(items(lab, "resourceslices"))
    claims = {claim["metadata"]["name"]: claim for claim in items(lab, "resourceclaims")}
    rows = []
    for pod in samples(lab):
        if pod["metadata"]["name"] == PENDING:
            continue
        allocated = [device for name in report.claims_of(pod) for device in report.allocated_devices(claims[name], devices)]
        for container in pod["spec"]["containers"]:
            output = lab.kubectl("logs", pod["metadata"]["name"], "-c", container["name"])
            rows.append(report.row(pod, output, allocated))
    return rows


def as_table(rows: Sequence[report.Row]) -> str:
    """Pod, node, devices, verdict."""
    heads = ("POD", "NODE", "ALLOCATED", "WHAT", "THE CONTAINER SEES")
    cells = [
        (
            row.pod,
            row.node,
            " ".join(d.name for d in row.allocated),
            "; ".join(sorted({d.what for d in row.allocated})),
            row.verdict(),
        )
        for row in rows
    ]
    widths = [max(len(line[column]) for line in (heads, *cells)) for column in range(len(heads))]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in (heads, *cells))
    return "\n".join(lines)


def why_pending(lab: Lab, pod: str) -> str:
    """What the pod asks for, what there is, and what the scheduler says of it."""
    template = json.loads(lab.kubectl("get", "resourceclaimtemplate", pod, "-o", "json"))
    selectors = template["spec"]["spec"]["devices"]["requests"][0]["exactly"]["selectors"]
    wanted = " and ".join(selector["cel"]["expression"] for selector in selectors)
    there = sorted({device.what for device in report.published_devices(items(lab, "resourceslices")).values()})
    return f"it asks for\n    {wanted}\nand the nodes have {', '.join(there)}. The scheduler says: {unschedulable(lab, pod)}"


def unschedulable(lab: Lab, pod: str) -> str:
    """The scheduler's own words."""
    conditions = json.loads(lab.kubectl("get", "pod", pod, "-o", "json")).get("status", {}).get("conditions", [])
    return next((c["message"] for c in conditions if c["type"] == "PodScheduled" and c["status"] == "False"), "no reason given yet")


def settled(pod: dict[str, Any]) -> bool:
    """Running with its output written, or, for the one that cannot run, judged by the scheduler."""
    status = pod.get("status", {})
    if pod["metadata"]["name"] == PENDING:
        return any(c["type"] == "PodScheduled" and c.get("reason") == "Unschedulable" for c in status.get("conditions", ()))
    return status.get("phase") == "Running" and all(c["ready"] for c in status.get("containerStatuses", ()))


def items(lab: Lab, kind: str) -> list[dict[str, Any]]:
    """All objects of a kind in the default namespace, or of the cluster."""
    found: list[dict[str, Any]] = json.loads(lab.kubectl("get", kind, "-o", "json"))["items"]
    return found


def wait(what: str, condition: Callable[[], bool], *, deadline: float = DEADLINE) -> None:
    """Poll until it holds. Raises LabError."""
    end = time.monotonic() + deadline
    while not condition():
        if time.monotonic() > end:
            raise LabError(f"{what} did not come within {deadline:g} s; look at `hack/cluster status` and `hack/cluster logs`")
        time.sleep(0.3)


if __name__ == "__main__":
    sys.exit(main())
