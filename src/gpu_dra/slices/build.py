"""Turn an inventory into the pool this node should publish.

Pure: reads a frozen `Inventory`, returns plain dicts in the shape of `resource.k8s.io/v1`, inside the limits of the API server's
version and free of anything it would refuse. Knows nothing of claims, of the network or of NVML.

An unhealthy GPU and its partitions carry a NoSchedule taint where the server keeps taints (1.36 and later). An older server drops
taints silently and would leave the GPU offered as if nothing were wrong, so there it is not published. An inventory without devices
becomes one empty slice: the driver is alive and has nothing to offer, and devices of a driver that went away are withdrawn.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from gpu_dra import DRIVER_NAME
from gpu_dra.slices import validate
from gpu_dra.slices.attributes import cut_to_attribute, gpu_device, mig_device
from gpu_dra.slices.limits import SliceLimits
from gpu_dra.slices.packing import pack
from gpu_dra.slices.pool import DesiredPool, Dropped

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpu_dra.kube.api import Object, ServerVersion
    from gpu_dra.model.gpu import Gpu
    from gpu_dra.model.inventory import Inventory
    from gpu_dra.model.mig import MigDevice

UNHEALTHY: Object = {"key": "gpu.nvidia.com/unhealthy", "effect": "NoSchedule"}
"""Without a value, since the reason is a sentence and no label; without a time, which the server sets."""


def build_slices(inventory: Inventory, *, node_name: str, server_version: ServerVersion, driver: str = DRIVER_NAME) -> DesiredPool:
    """The pool of this node, the same for every order of the GPUs in `inventory`."""
    limits = SliceLimits.of(server_version)
    owners: dict[str, int] = {}
    devices: list[Object] = []
    dropped: list[Dropped] = []
    for position, gpu in enumerate(sorted(inventory.gpus, key=lambda gpu: (gpu.minor, gpu.pci, gpu.uuid))):
        if gpu.unhealthy is not None and not limits.keeps_taints:
            dropped.append(Dropped(device=gpu.name, what="device", reason=f"unhealthy: {gpu.unhealthy}"))
            continue
        if (name := cut_to_attribute(gpu.product_name)) != gpu.product_name:
            dropped.append(Dropped(device=gpu.name, what="attribute productName", reason=f"cut to {name!r}"))
        for device in _devices(gpu, inventory):
            owners.setdefault(device["name"], position)
            devices.append(device)
    kept, refused = validate.sanitize(devices, limits)
    groups = [tuple(group) for _, group in groupby(kept, key=lambda device: owners[device["name"]])]
    return DesiredPool(driver=driver, node_name=node_name, slices=pack(groups, limit=limits.devices), dropped=(*dropped, *refused))


def _devices(gpu: Gpu, inventory: Inventory) -> Iterator[Object]:
    """What of one GPU may be allocated: itself, or its partitions when it is in MIG mode."""
    described = (
        [mig_device(gpu, mig, inventory) for mig in sorted(gpu.mig_devices, key=_place)]
        if gpu.in_mig_mode
        else [gpu_device(gpu, inventory)]
    )
    for device in described:
        yield device if gpu.unhealthy is None else {**device, "taints": [UNHEALTHY]}


def _place(mig: MigDevice) -> tuple[int, int, int]:
    return mig.placement.start, mig.gpu_instance_id, mig.compute_instance_id
