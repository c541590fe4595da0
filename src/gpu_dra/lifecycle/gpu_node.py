"""The GpuNode object: what the agent saw, as `api/crds/gpudra.dev_gpunodes.yaml` has it. Pure."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from gpu_dra.kube.api import Resource
from gpu_dra.lifecycle.preflight.checks import Finding, Verdict

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpu_dra.kube.api import Object
    from gpu_dra.lifecycle.mig.geometry import Board
    from gpu_dra.lifecycle.preflight.facts import HostFacts
    from gpu_dra.lifecycle.runtime.cri import RuntimeFacts

GPU_NODES: Final = Resource(group="gpudra.dev", version="v1alpha1", plural="gpunodes", namespaced=False)
API_VERSION: Final = "gpudra.dev/v1alpha1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """All that a look found."""

    facts: HostFacts
    runtime: RuntimeFacts
    boards: Sequence[Board]
    """Empty where NVML does not answer."""
    findings: Sequence[Finding]
    driver_root: str
    mig: Mapping[str, str]
    """`config` and `state`; empty without a wish."""


def new(node: Object) -> Object:
    """The object without a status; it goes with its Node."""
    owner = {"apiVersion": "v1", "kind": "Node", "name": node["metadata"]["name"], "uid": node["metadata"]["uid"]}
    return {
        "apiVersion": API_VERSION,
        "kind": "GpuNode",
        "metadata": {"name": node["metadata"]["name"], "ownerReferences": [owner]},
    }


def with_status(gpu_node: Object, seen: Seen, *, now: float) -> Object | None:
    """The object with the status of a look; None when it says so already. The time of a condition changes with its status only."""
    before = gpu_node.get("status") or {}
    known = {condition["type"]: condition for condition in before.get("conditions") or ()}
    bad = [finding for finding in seen.findings if finding.verdict is Verdict.FALSE]
    after = {
        "phase": "NotReady" if bad else "Ready",
        "waitsFor": bad[0].message if bad else "",
        "gpuCount": len(seen.facts.gpus),
        "product": ", ".join(sorted({board.product_name for board in seen.boards})),
        "driver": _without_none(
            version=seen.facts.module_version,
            libraryVersion=seen.facts.library_version,
            root=seen.driver_root,
            modules={True: "open", False: "proprietary", None: "unknown"}[seen.facts.module_is_open],
        ),
        "kernel": _without_none(
            running=seen.facts.running.release if seen.facts.running else None,
            bootsNext=seen.facts.boots_next.release if seen.facts.boots_next else None,
            secureBoot=seen.facts.secure_boot,
        ),
        "runtime": _without_none(
            name=seen.runtime.name or None,
            version=seen.runtime.version or None,
            cdi={True: "on", False: "off", None: "unknown"}[seen.runtime.cdi],
        ),
        "mig": dict(seen.mig),
        "gpus": _gpus(seen),
        "conditions": [_condition(finding, known.get(finding.type), now=now) for finding in seen.findings],
    }
    return None if after == before else {**gpu_node, "status": after}


def _gpus(seen: Seen) -> list[dict[str, Any]]:
    boards = {board.pci: board for board in seen.boards}
    found = []
    for pci, driver in sorted(seen.facts.gpus.items()):
        gpu: dict[str, Any] = {"pci": pci, "driver": driver or ""}
        if board := boards.get(pci):
            gpu |= {"minor": board.minor, "uuid": board.uuid, "product": board.product_name, "mig": _geometry(board)}
        found.append(gpu)
    return found


def _geometry(board: Board) -> str:
    if board.mode is None or not board.mode.current:
        return "whole"
    count = Counter(partition.profile_name for partition in board.partitions)
    return ", ".join(f"{number} × {name}" for name, number in sorted(count.items())) or "MIG on, no partition"


def _condition(finding: Finding, known: Mapping[str, Any] | None, *, now: float) -> dict[str, str]:
    since = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now))
    if known is not None and known["status"] == finding.verdict:
        since = known["lastTransitionTime"]
    return {
        "type": finding.type,
        "status": str(finding.verdict),
        "reason": finding.reason,
        "message": finding.message,
        "lastTransitionTime": since,
    }


def _without_none(**fields: Any) -> dict[str, Any]:  # noqa: ANN401 - values of JSON
    return {name: value for name, value in fields.items() if value is not None}
