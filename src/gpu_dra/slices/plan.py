"""What has to be written so that the stored slices become the desired pool.

Pure. Follows the Go helper's slice controller, so that schedulers never see two states of a pool mixed:
- a stored slice belongs to the index in its name; others of this driver and node (of an older helper, of another pool, doubles) go;
- the pool's generation stays while at most one stored slice changes and none is new, else every slice gets the highest + 1;
- delete, then update, then create: a pool that lacks slices of its count is not used, one with a stale device might be;
- a withdrawn pool takes back our own slices alone, known by their label: another driver of the same name may have its own there.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpu_dra.slices.compare import same_spec
from gpu_dra.slices.marks import OURS
from gpu_dra.slices.names import generate_name, index_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from gpu_dra.kube.api import Object
    from gpu_dra.slices.pool import DesiredPool


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeOwner:
    """The Node object that owns the slices, so that they are collected when it goes."""

    name: str
    uid: str

    def reference(self) -> Object:
        """As an entry of `metadata.ownerReferences`."""
        return {"apiVersion": "v1", "kind": "Node", "name": self.name, "uid": self.uid, "controller": True}


@dataclass(frozen=True, slots=True, kw_only=True)
class Create:
    """Create a slice; the server completes its name."""

    body: Object


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """Replace a slice, if it is still the version that was read."""

    body: Object


@dataclass(frozen=True, slots=True, kw_only=True)
class Delete:
    """Delete a slice, if it is still the version that was read."""

    name: str
    uid: str
    resource_version: str


Write = Create | Update | Delete


def plan_writes(desired: DesiredPool, stored: Sequence[Object], *, owner: NodeOwner) -> tuple[Write, ...]:
    """Writes in the order in which they must happen; empty when what is stored is right.

    `stored` are all slices of this driver on this node, whoever made them.
    """
    if desired.withdrawn:
        return tuple(_delete(slice_) for slice_ in stored if _is_ours(slice_))
    matched = _match(desired, stored)
    generation = max((_generation(slice_) for slice_ in stored if _pool(slice_) == desired.name), default=0)
    specs = _specs(desired, stored, generation)
    changed = [index for index, slice_ in matched.items() if not same_spec(specs[index], slice_["spec"])]
    if len(changed) > 1 or len(matched) < len(specs):
        specs = _specs(desired, stored, generation + 1)
    kept = {slice_["metadata"]["name"] for slice_ in matched.values()}
    return (
        *(_delete(slice_) for slice_ in stored if slice_["metadata"]["name"] not in kept),
        *_updates(specs, matched, owner),
        *(Create(body=_new(index, spec, owner)) for index, spec in enumerate(specs) if index not in matched),
    )


def _match(desired: DesiredPool, stored: Iterable[Object]) -> dict[int, Object]:
    """Stored slices by the desired index they are for; of doubles the one with the highest generation."""
    matched: dict[int, Object] = {}
    for slice_ in sorted(stored, key=lambda slice_: (-_generation(slice_), slice_["metadata"]["name"])):
        index = index_of(slice_["metadata"]["name"], driver=desired.driver, node_name=desired.node_name)
        if index is not None and index < len(desired.slices) and _pool(slice_) == desired.name:
            matched.setdefault(index, slice_)
    return dict(sorted(matched.items()))


def _specs(desired: DesiredPool, stored: Iterable[Object], generation: int) -> list[Object]:
    times = _taint_times(stored)
    pool = {"name": desired.name, "generation": generation, "resourceSliceCount": len(desired.slices)}
    return [
        {
            "driver": desired.driver,
            "nodeName": desired.node_name,
            "pool": dict(pool),
            "devices": [_with_times(device, times) for device in piece.devices],
        }
        for piece in desired.slices
    ]


def _updates(specs: Sequence[Object], matched: Mapping[int, Object], owner: NodeOwner) -> Iterator[Update]:
    for index, slice_ in matched.items():
        owned = slice_["metadata"].get("ownerReferences") == [owner.reference()] and _is_ours(slice_)
        if not owned or not same_spec(specs[index], slice_["spec"]):
            before = copy.deepcopy(slice_["metadata"])
            labels = {**before.get("labels", {}), **OURS}
            metadata = {**before, "labels": labels, "ownerReferences": [owner.reference()]}
            yield Update(body={**_TYPE, "metadata": metadata, "spec": specs[index]})


def _new(index: int, spec: Object, owner: NodeOwner) -> Object:
    name = generate_name(index, driver=spec["driver"], node_name=spec["nodeName"])
    metadata = {"generateName": name, "labels": dict(OURS), "ownerReferences": [owner.reference()]}
    return {**_TYPE, "metadata": metadata, "spec": spec}


def _is_ours(slice_: Object) -> bool:
    labels = slice_["metadata"].get("labels", {})
    return all(labels.get(key) == value for key, value in OURS.items())


def _delete(slice_: Object) -> Delete:
    metadata = slice_["metadata"]
    return Delete(name=metadata["name"], uid=metadata["uid"], resource_version=metadata["resourceVersion"])


_TYPE = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice"}


def _pool(slice_: Object) -> str:
    name: str = slice_["spec"]["pool"]["name"]
    return name


def _generation(slice_: Object) -> int:
    generation: int = slice_["spec"]["pool"].get("generation", 0)
    return generation


def _taint_times(stored: Iterable[Object]) -> dict[tuple[str, str, str, str], str]:
    """When each stored taint was set, by device, key, value and effect."""
    return {
        _taint_identity(device["name"], taint): taint["timeAdded"]
        for slice_ in stored
        for device in slice_["spec"].get("devices") or ()
        for taint in device.get("taints") or ()
        if taint.get("timeAdded")
    }


def _with_times(device: Object, times: Mapping[tuple[str, str, str, str], str]) -> Object:
    """The device with the times of taints it already has: a taint without one would be set anew by the server."""
    if not device.get("taints"):
        return device
    taints = [
        {**taint, "timeAdded": times[identity]} if (identity := _taint_identity(device["name"], taint)) in times else taint
        for taint in device["taints"]
    ]
    return {**device, "taints": taints}


def _taint_identity(device: str, taint: Object) -> tuple[str, str, str, str]:
    return device, taint["key"], taint.get("value", ""), taint["effect"]
