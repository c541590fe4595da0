"""What a person asks for when they ask for a lab. Pure values, checked here and nowhere else."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from typing import Any, Self

from hack.testbed.cluster.catalog import DEFAULT_KUBERNETES, KUBERNETES_VERSIONS
from hack.testbed.cluster.errors import LabError

MAX_NODES = 15  # a lab has sixteen pod subnets, see `addresses`
_LAB_NAME = re.compile(r"[a-z][a-z0-9]{0,7}")  # interface names hold 15 characters: gd-<lab>-<ordinal>
_NODE_NAME = re.compile(r"[a-z]([a-z0-9-]{0,30}[a-z0-9])?")


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSpec:
    """A node and the machine it plays: a profile of `hack/mock-nvml/profiles`, or none for a node without GPUs."""

    name: str
    profile: str | None = None
    hook: bool = False
    """Whether the machine has `nvidia-cdi-hook`, as one with NVIDIA's container toolkit."""

    def __post_init__(self) -> None:
        if not _NODE_NAME.fullmatch(self.name):
            raise LabError(f"node name {self.name!r}: use up to 32 lower-case letters, digits and dashes, beginning with a letter")

    @classmethod
    def parse(cls, text: str) -> Self:
        """From `NAME`, `NAME=PROFILE` or `NAME=PROFILE+hook`. Raises LabError."""
        name, _, machine = text.partition("=")
        profile, _, extra = machine.partition("+")
        if extra not in {"", "hook"}:
            raise LabError(f"node {text!r}: after a profile comes nothing or +hook")
        return cls(name=name, profile=profile or None, hook=bool(extra))

    def __str__(self) -> str:
        return self.name + (f"={self.profile}" if self.profile else "") + ("+hook" if self.hook else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class LabSpec:
    """One lab as asked for."""

    name: str
    kubernetes: str
    nodes: tuple[NodeSpec, ...]
    feature_gates: str = ""
    """As the flag of the Kubernetes programs: `A=true,B=false`. A gate that a version does not know stops its servers."""
    runtime_config: str = ""
    """As the flag of the API server: `resource.k8s.io/v1beta2=true`."""

    def __post_init__(self) -> None:
        check_lab_name(self.name)
        if self.kubernetes not in KUBERNETES_VERSIONS:
            raise LabError(f"Kubernetes {self.kubernetes!r} is not built here; choose one of {', '.join(KUBERNETES_VERSIONS)}")
        names = [node.name for node in self.nodes]
        if len(set(names)) != len(names):
            raise LabError(f"two nodes have the same name: {', '.join(names)}")
        if not 1 <= len(names) <= MAX_NODES:
            raise LabError(f"{len(names)} nodes asked for; a lab has 1 to {MAX_NODES}")

    def node(self, name: str) -> NodeSpec:
        """One node by name. Raises LabError."""
        for node in self.nodes:
            if node.name == name:
                return node
        raise LabError(f"lab {self.name} has no node {name!r}; it has {', '.join(node.name for node in self.nodes)}")

    def ordinal(self, name: str) -> int:
        """Position of a node, from 1; its addresses follow from it."""
        return self.nodes.index(self.node(name)) + 1

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        """The opposite of `to_json`. Raises KeyError or TypeError when the data has another shape."""
        return cls(**{**data, "nodes": tuple(NodeSpec(**node) for node in data["nodes"])})


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """What the caller of `up` said; None where nothing was said."""

    name: str
    kubernetes: str | None = None
    nodes: tuple[NodeSpec, ...] | None = None
    feature_gates: str | None = None
    runtime_config: str | None = None


def settle(wishes: Wishes, existing: LabSpec | None) -> LabSpec:
    """The spec to bring up: the existing lab as it is, or a new one. Raises LabError when an existing lab is another one."""
    if existing is None:
        return LabSpec(
            name=wishes.name,
            kubernetes=wishes.kubernetes or DEFAULT_KUBERNETES,
            nodes=wishes.nodes or (NodeSpec(name="node-a"),),
            feature_gates=wishes.feature_gates or "",
            runtime_config=wishes.runtime_config or "",
        )
    for field in ("kubernetes", "nodes", "feature_gates", "runtime_config"):
        wanted, found = getattr(wishes, field), getattr(existing, field)
        if wanted is not None and wanted != found:
            raise LabError(
                f"lab {wishes.name} exists with {_words(field, found)}, not {_words(field, wanted)}; "
                f"take it down first (hack/cluster down --name {wishes.name}) or choose another name"
            )
    return existing


def check_lab_name(name: str) -> None:
    """Raises LabError."""
    if not _LAB_NAME.fullmatch(name):
        raise LabError(f"lab name {name!r}: use up to 8 lower-case letters and digits, beginning with a letter")


def _words(field: str, value: str | tuple[NodeSpec, ...]) -> str:
    words = value if isinstance(value, str) else ", ".join(map(str, value))
    return f"{field.replace('_', ' ')} {words or 'not set'}"
