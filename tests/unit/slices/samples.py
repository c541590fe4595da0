"""Machines and stored slices that the tests of this room begin with, and the official model every payload must fit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kubernetes import client

from gpu_dra.kube.api import Object, ServerVersion
from gpu_dra.model.gpu import Fabric, Gpu, MigMode
from gpu_dra.model.inventory import DriverState, Inventory
from gpu_dra.model.mig import MigDevice, MigProfile, Placement
from gpu_dra.model.pci import PciAddress
from gpu_dra.slices.marks import OURS
from gpu_dra.slices.plan import Create, Delete, NodeOwner, Update, Write
from gpu_dra.slices.pool import DesiredPool, DesiredSlice

DRIVER = "gpu.nvidia.com"
NODE = "node-a"
V1_34 = ServerVersion(major=1, minor=34)
V1_35 = ServerVersion(major=1, minor=35)
V1_36 = ServerVersion(major=1, minor=36)
OWNER = NodeOwner(name=NODE, uid="11111111-1111-1111-1111-111111111111")

SMALL_PROFILE = MigProfile(
    name="1g.10gb+me",
    profile_id=20,
    multiprocessors=16,
    copy_engines=1,
    decoders=1,
    encoders=0,
    jpeg_engines=1,
    ofa_engines=1,
    memory_mib=9856,
)


def h100(minor: int, **facts: Any) -> Gpu:
    """A full GPU as discovery describes it, with everything known."""
    known: dict[str, Any] = {
        "minor": minor,
        "uuid": f"GPU-00000000-0000-0000-0000-{minor:012x}",
        "pci": PciAddress(0, 0x10 + minor, 0, 0),
        "product_name": "NVIDIA H100 80GB HBM3",
        "brand": "Nvidia",
        "architecture": "Hopper",
        "cuda_compute_capability": (9, 0),
        "memory_bytes": 85520809984,
        "addressing_mode": "HMM",
        "pcie_root": f"pci0000:{0x10 + minor:02x}",
        "numa_node": minor // 4,
        "mig_mode": MigMode(current=False, pending=False),
    }
    return Gpu(**{**known, **facts})


def partition(minor: int, start: int, **facts: Any) -> MigDevice:
    """One small partition of GPU `minor` at memory slice `start`."""
    known: dict[str, Any] = {
        "uuid": f"MIG-00000000-0000-0000-{start:04x}-{minor:012x}",
        "parent_minor": minor,
        "parent_uuid": f"GPU-00000000-0000-0000-0000-{minor:012x}",
        "gpu_instance_id": 7 + start,
        "compute_instance_id": 0,
        "profile": SMALL_PROFILE,
        "placement": Placement(start=start, size=1),
    }
    return MigDevice(**{**known, **facts})


def partitioned(minor: int, count: int = 7) -> Gpu:
    """A GPU in MIG mode with `count` small partitions."""
    migs = tuple(partition(minor, start) for start in range(count))
    return h100(minor, mig_mode=MigMode(current=True, pending=True), mig_devices=migs)


def inventory(*gpus: Gpu, **facts: Any) -> Inventory:
    """A node with these GPUs and a driver that answers."""
    known: dict[str, Any] = {
        "state": DriverState.READY,
        "driver_version": "580.126.09",
        "cuda_driver_version": (13, 0),
        "gpus": gpus,
    }
    return Inventory(**{**known, **facts})


FABRIC = Fabric(cluster_uuid="5a1d0b64-1e1c-4ba0-9f7c-0c63c1d6e3a2", clique=32766)


def pool(*pieces: tuple[Object, ...], node_name: str = NODE) -> DesiredPool:
    """A pool of these slices."""
    return DesiredPool(driver=DRIVER, node_name=node_name, slices=tuple(DesiredSlice(devices=piece) for piece in pieces))


def device(name: str, **parts: Any) -> Object:
    """A small device."""
    return {"name": name, "attributes": {"type": {"string": "gpu"}}, "capacity": {"memory": {"value": "80Gi"}}, **parts}


def names(desired: DesiredPool) -> list[list[str]]:
    """Device names by slice."""
    return [[item["name"] for item in piece.devices] for piece in desired.slices]


class Server:
    """What is stored, changed by writes as the API server would, without a network."""

    def __init__(self) -> None:
        self.stored: dict[str, Object] = {}
        self._count = 0

    def add(self, name: str, spec: Object, **metadata: Any) -> Object:
        """Store an object as if somebody else had made it."""
        self._count += 1
        base = {
            "name": name,
            "uid": f"uid-{self._count}",
            "resourceVersion": str(self._count),
            "labels": dict(OURS),
            "ownerReferences": [OWNER.reference()],
        }
        self.stored[name] = {"metadata": {**base, **metadata}, "spec": spec}
        return self.stored[name]

    def carry_out(self, write: Write) -> None:
        """Do one write."""
        match write:
            case Delete(name=name):
                del self.stored[name]
            case Update(body=body):
                self.add(**_parts(body["metadata"]["name"], body))
            case Create(body=body):
                self.add(**_parts(f"{body['metadata']['generateName']}{self._count:05d}", body))

    def slices(self) -> tuple[Object, ...]:
        """Everything stored."""
        return tuple(self.stored.values())


def _parts(name: str, body: Object) -> dict[str, Any]:
    return {
        "name": name,
        "spec": body["spec"],
        "ownerReferences": body["metadata"]["ownerReferences"],
        "labels": body["metadata"]["labels"],
    }


def check_payload(body: Object) -> None:
    """The official typed model takes the payload; it forbids unknown fields."""
    client.V1ResourceSlice(**body)


def unhealthy(gpu: Gpu, reason: str = "fell off the bus (XID 79)") -> Gpu:
    """The same GPU with something known against it."""
    return replace(gpu, unhealthy=reason)
