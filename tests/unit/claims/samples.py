"""The node, the claims and the stand-ins that the tests of this room begin with."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpu_dra.cdi.builder import BuiltSpec, ClaimDevice
from gpu_dra.cdi.naming import CLAIM_KIND, device_name
from gpu_dra.cdi.spec import ContainerEdits, Device, DeviceNode, Spec
from gpu_dra.kube.api import Object, ObjectList
from gpu_dra.kube.errors import NotFound
from gpu_dra.model.claim import ClaimRef
from gpu_dra.model.gpu import Gpu, MigMode
from gpu_dra.model.inventory import DriverState, Inventory
from gpu_dra.model.mig import MigDevice, MigProfile, Placement
from gpu_dra.model.pci import PciAddress
from gpu_dra.model.prepared import Effect, Phase, PreparedClaim, PreparedDevice

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpu_dra.claims.plan import PreparePlan

DRIVER = "gpu.nvidia.com"
POOL = "node-a"
VERSION = "580.126.09"
PROFILE = MigProfile(
    name="1g.10gb",
    profile_id=19,
    multiprocessors=16,
    copy_engines=1,
    decoders=1,
    encoders=0,
    jpeg_engines=1,
    ofa_engines=0,
    memory_mib=9856,
)


def uid(number: int) -> str:
    return f"00000000-0000-4000-8000-{number:012d}"


def ref(number: int = 1) -> ClaimRef:
    return ClaimRef(namespace="team", name=f"claim-{number}", uid=uid(number))


def gpu(minor: int, **facts: Any) -> Gpu:
    known: dict[str, Any] = {
        "minor": minor,
        "uuid": f"GPU-{minor}",
        "pci": PciAddress(0, 0x10 + minor, 0, 0),
        "product_name": "NVIDIA H100 80GB HBM3",
        "mig_mode": MigMode(current=False, pending=False),
    }
    return Gpu(**{**known, **facts})


def partition(minor: int, start: int, *, size: int = 1, uuid: str | None = None) -> MigDevice:
    return MigDevice(
        uuid=uuid or f"MIG-{minor}-{start}",
        parent_minor=minor,
        parent_uuid=f"GPU-{minor}",
        gpu_instance_id=7 + start,
        compute_instance_id=0,
        profile=PROFILE,
        placement=Placement(start=start, size=size),
    )


def partitioned(minor: int, *migs: MigDevice) -> Gpu:
    return gpu(minor, mig_mode=MigMode(current=True, pending=True), mig_devices=migs)


def inventory(*gpus: Gpu, **facts: Any) -> Inventory:
    known: dict[str, Any] = {"state": DriverState.READY, "driver_version": VERSION, "gpus": gpus}
    return Inventory(**{**known, **facts})


def result(device: str, **facts: Any) -> Object:
    return {"request": "gpu", "driver": DRIVER, "pool": POOL, "device": device, **facts}


def opaque(parameters: Any, *, source: str = "FromClaim", requests: Sequence[str] = (), driver: str = DRIVER) -> Object:
    return {"source": source, "requests": list(requests), "opaque": {"driver": driver, "parameters": parameters}}


def claim(number: int, *results: Object, config: Sequence[Object] = ()) -> Object:
    return {
        "metadata": {"namespace": "team", "name": f"claim-{number}", "uid": uid(number)},
        "status": {"allocation": {"devices": {"results": list(results), "config": list(config)}}},
    }


def prepared(number: int, *devices: PreparedDevice, **facts: Any) -> PreparedClaim:
    known: dict[str, Any] = {"ref": ref(number), "phase": Phase.DONE, "devices": devices, "boot_id": "boot-1"}
    return PreparedClaim(**{**known, **facts})


def held(device: str, **facts: Any) -> PreparedDevice:
    known: dict[str, Any] = {"request": "gpu", "pool": POOL, "device": device, "uuid": "", "cdi_ids": ()}
    return PreparedDevice(**{**known, **facts})


class StandInApi:
    """The claims of an API server, with an outage on request."""

    def __init__(self) -> None:
        self.claims: dict[str, Object] = {}
        self.outage: Exception | None = None
        self.list_outage: Exception | None = None
        self.reads = 0
        self.lists = 0

    def put(self, claim: Object) -> None:
        self.claims[claim["metadata"]["name"]] = claim

    async def get(self, _resource: object, name: str, *, namespace: str | None = None) -> Object:
        self.reads += 1
        if self.outage:
            raise self.outage
        if name not in self.claims:
            raise NotFound(f"{namespace}/{name}")
        return self.claims[name]

    async def list(self, _resource: object) -> ObjectList:
        self.lists += 1
        if outage := self.outage or self.list_outage:
            raise outage
        return ObjectList(items=tuple(self.claims.values()), resource_version="1")


class StandInInventories:
    """Discovery whose next look is set by the test."""

    def __init__(self, *gpus: Gpu) -> None:
        self.current = inventory(*gpus)
        self.next: Inventory | None = None
        self.refreshes = 0

    async def refresh(self) -> Inventory:
        self.refreshes += 1
        self.current = self.next or self.current
        return self.current


class StandInBuilder:
    """Builds specs with one device node, `/dev/null` under the GPU's name; fails, blocks and loses host paths on request."""

    def __init__(self) -> None:
        self.failure: Exception | None = None
        self.gone: tuple[str, ...] = ()
        self.builds = 0
        self.gates: dict[str, threading.Event] = {}
        self.waiting = threading.Event()

    def block(self, device: str) -> threading.Event:
        return self.gates.setdefault(device, threading.Event())

    def build(self, claim_uid: str, devices: Sequence[ClaimDevice], *, driver_version: str) -> BuiltSpec:
        self.builds += 1
        for device in devices:
            if gate := self.gates.get(device.name):
                self.waiting.set()
                assert gate.wait(10), "nobody opened the gate"
        if self.failure:
            raise self.failure
        self.gone = ()
        nodes = {device.name: DeviceNode(path=f"/dev/nvidia{device.gpu.minor}", major=1, minor=3) for device in devices}
        spec = Spec(
            kind=CLAIM_KIND,
            devices=tuple(
                Device(name=device_name(claim_uid, name), edits=ContainerEdits(device_nodes=(node,)))
                for name, node in nodes.items()
            ),
            edits=ContainerEdits(env=(f"DRIVER={driver_version}",)),
        )
        ids = {name: (spec.cdi_id(device_name(claim_uid, name)),) for name in nodes}
        return BuiltSpec(spec=spec, cdi_ids=ids, node_paths=tuple(node.path for node in nodes.values()), missing=())

    def missing_paths(self, _spec: Spec) -> tuple[str, ...]:
        return self.gone


class FileEffects:
    """One side effect a device: a file named after it. Survives a crash as the host's state would; fails on request."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.fail_apply: str | None = None
        self.fail_undo: str | None = None

    def plan(self, plan: PreparePlan) -> tuple[Effect, ...]:
        return tuple(Effect(kind="file", data={"name": device.name}) for device in plan.devices if not device.admin_access)

    def apply(self, effect: Effect) -> None:
        self._fail(effect, self.fail_apply)
        (self.directory / effect.data["name"]).touch()

    def undo(self, effect: Effect) -> None:
        self._fail(effect, self.fail_undo)
        (self.directory / effect.data["name"]).unlink(missing_ok=True)

    def made(self) -> set[str]:
        return {path.name for path in self.directory.iterdir()}

    def _fail(self, effect: Effect, name: str | None) -> None:
        from gpu_dra.core.errors import NotReady

        if effect.data["name"] == name:
            raise NotReady(f"{name} is busy")


class StandInUsers:
    """Says what the test says."""

    def __init__(self) -> None:
        self.user: str | None = None

    def in_use(self, _claim: PreparedClaim) -> str | None:
        return self.user
