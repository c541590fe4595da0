"""What discovery finds on a machine profile, without the C mock: for tests of what is made from an inventory."""

from __future__ import annotations

from gpu_dra.model.gpu import Gpu, MigMode
from gpu_dra.model.inventory import DriverState, Inventory
from gpu_dra.model.mig import MigDevice, MigProfile, Placement
from gpu_dra.model.pci import PciAddress
from hack.testbed.profiles import GpuInstanceProfile, GpuSpec, Machine, Partition

_MIB = 1024**2


def inventory_of(machine: Machine) -> Inventory:
    """The machine as it is after start: a GPU is in MIG mode when it has partitions."""
    gpus = tuple(_gpu(spec, [part for part in machine.partitions if part.gpu == spec.index]) for spec in machine.gpus)
    return _ready(machine, gpus)


def cut_inventory_of(machine: Machine) -> Inventory:
    """On every GPU one partition of every profile of its board, more than would fit. Raises ValueError where a board cannot do MIG."""
    return _ready(machine, tuple(_gpu(spec, _one_of_each(spec)) for spec in machine.gpus))


def _one_of_each(spec: GpuSpec) -> list[Partition]:
    if spec.board.mig is None:
        raise ValueError(f"{spec.board.product} cannot be partitioned")
    return [Partition(gpu=spec.index, profile=each.name, start=each.starts[0]) for each in spec.board.mig.profiles]


def _ready(machine: Machine, gpus: tuple[Gpu, ...]) -> Inventory:
    return Inventory(state=DriverState.READY, driver_version=machine.driver_version, cuda_driver_version=(13, 0), gpus=gpus)


def _gpu(spec: GpuSpec, parts: list[Partition]) -> Gpu:
    board = spec.board
    major, minor = board.compute_capability.split(".")
    return Gpu(
        minor=spec.minor,
        uuid=spec.uuid,
        pci=PciAddress.parse(spec.pci),
        product_name=board.product,
        brand=board.brand,
        architecture=board.architecture,
        cuda_compute_capability=(int(major), int(minor)),
        memory_bytes=board.memory_mib * _MIB,
        pcie_root=spec.pcie_root,
        mig_mode=MigMode(current=bool(parts), pending=bool(parts)) if board.mig else None,
        mig_devices=tuple(_partition(spec, part, index) for index, part in enumerate(parts)),
    )


def _partition(spec: GpuSpec, part: Partition, index: int) -> MigDevice:
    assert spec.board.mig is not None
    profile = spec.board.mig.profile(part.profile)
    return MigDevice(
        uuid=f"MIG-{spec.uuid.removeprefix('GPU-')[:-4]}{index:04x}",
        parent_minor=spec.minor,
        parent_uuid=spec.uuid,
        gpu_instance_id=index,
        compute_instance_id=0,
        profile=_profile(profile),
        placement=Placement(start=part.start, size=profile.size),
    )


def _profile(row: GpuInstanceProfile) -> MigProfile:
    return MigProfile(
        name=row.name,
        profile_id=row.id,
        multiprocessors=row.multiprocessors,
        copy_engines=row.copy_engines,
        decoders=row.decoders,
        encoders=row.encoders,
        jpeg_engines=row.jpeg_engines,
        ofa_engines=row.ofa_engines,
        memory_mib=row.memory_mib,
    )
