"""What the upgrade planner looks at, and what it answers: frozen values without behaviour.

States carry the values of the GPU operator's node label, so that dashboards and scripts which watch it go on working.
Source: `nvidia.com/gpu-driver-upgrade-state` of NVIDIA's operator libraries, package `upgrade`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias


class State(StrEnum):
    """Where a node is on its way to another driver."""

    UNKNOWN = ""
    DONE = "upgrade-done"
    REQUIRED = "upgrade-required"
    CORDON = "cordon-required"
    JOBS = "wait-for-jobs-required"
    PODS = "pod-deletion-required"
    RESTART = "pod-restart-required"
    VALIDATION = "validation-required"
    UNCORDON = "uncordon-required"
    FAILED = "upgrade-failed"


WITHDRAWN = frozenset({State.PODS, State.RESTART})
"""States in which the node's agent keeps its GPUs out of the slices, and the plugin off the driver."""

UNDER_WAY = frozenset({State.CORDON, State.JOBS, State.PODS, State.RESTART, State.VALIDATION, State.UNCORDON})
"""States in which a node takes up a slot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What is remembered of a node between two looks; kept in its GpuNode, so that any controller goes on where another ended."""

    state: State = State.UNKNOWN
    since: float = 0.0
    """Seconds of the epoch at which the state was entered."""
    target: str = ""
    """The driver revision that is being brought to the node; empty once it was given up."""
    last_good: str = ""
    """The last revision that was validated here."""
    failure: str = ""
    """Why `target` did not work; kept until another revision is wanted."""
    failed_target: str = ""
    gave_back: str = ""
    """Why an upgrade was given up that had changed nothing."""
    not_before: float = 0.0
    """When it is begun again, in seconds of the epoch."""
    message: str = ""
    """What the node waits for, or what was done, in a sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuPod:
    """A pod that has a GPU of the node: by a claim without adminAccess, an extended resource, or the device's file."""

    name: str
    """`namespace/name`."""
    finishes: bool = False
    """It belongs to a Job, so that waiting for its end makes sense."""
    refused: str = ""
    """Why the API server did not evict it when it was asked last: a PodDisruptionBudget's words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverPod:
    """The driver container of a node."""

    revision: str
    ready: bool = False
    trouble: str = ""
    """Why it does not come up by itself any more, e.g. that it has crashed eleven times."""


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """One node as it was found."""

    name: str
    record: Record
    assigned: str = ""
    """The driver revision whose DaemonSet the node's label selects; empty for none."""
    driver: DriverPod | None = None
    validated: bool = False
    """Module, libraries, device nodes and slices are in order with the driver that runs."""
    lacks: str = ""
    """What keeps it from being validated, in a sentence."""
    pods: tuple[GpuPod, ...] = ()
    offered: bool = False
    """Some slice of the node has a device, so that a pod could get one even now."""
    unschedulable: bool = False
    cordoned_by_us: bool = False
    """It carries our mark, which is written together with the cordon."""
    ready: bool = True
    """The kubelet's condition Ready."""
    skip: bool = False
    """The node's label says that it is to be left out."""
    canary: bool = False
    retry: bool = False
    """A person has removed the state label of a node that failed, and so asks for another try."""

    @property
    def foreign_cordon(self) -> bool:
        """Somebody else has cordoned it."""
        return self.unschedulable and not self.cordoned_by_us


@dataclass(frozen=True, slots=True)
class Cordon:
    """Make the node unschedulable and mark it as ours, in one write."""


@dataclass(frozen=True, slots=True)
class Uncordon:
    """Take mark and cordon away, in one write; a cordon without our mark stays."""


@dataclass(frozen=True, slots=True)
class Evict:
    """Ask for the eviction of these pods, which PodDisruptionBudgets may refuse."""

    pods: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Assign:
    """Label the node so that the DaemonSet of this revision runs there; empty: none, so that the driver there ends first."""

    revision: str


Action: TypeAlias = Cordon | Uncordon | Evict | Assign


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What to remember of a node, and then what to do. Doing it twice is as doing it once."""

    record: Record
    actions: tuple[Action, ...] = ()
