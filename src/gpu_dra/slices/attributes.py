"""One GPU or MIG device as an API device: its attributes and capacities.

Names are those of NVIDIA's driver, so that its selectors go on working, plus the standard `resource.kubernetes.io/numaNode` and two
for multi-node NVLink: `fabricClusterUUID` and `fabricCliqueID`, together the domain that the GPU operator's `gpu.clique` label names.
They are two attributes, since a claim that matches both asks for one NVLink domain and a claim that matches the first for one rack.
Nothing is checked here: a value the API server would refuse is found, and reported, by `validate`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpu_dra.model import quantity, semver
from gpu_dra.slices.limits import ATTRIBUTES_AND_CAPACITIES, STRING_BYTES

if TYPE_CHECKING:
    from gpu_dra.kube.api import Object
    from gpu_dra.model.gpu import Gpu
    from gpu_dra.model.inventory import Inventory
    from gpu_dra.model.mig import MigDevice

_STANDARD = "resource.kubernetes.io/"
_MIB = 1024**2

NEVER_TRIMMED = frozenset({"type", "uuid", "parentUUID", "profile", "productName", "memory"})
"""What a device must not lose, however many entries it has."""
TRIMMED_FIRST = ("fabricCliqueID", "fabricClusterUUID", "addressingMode", "brand")
"""In this order, after attributes that are not in our table."""
TABLE = frozenset(
    {
        *NEVER_TRIMMED,
        *TRIMMED_FIRST,
        *("architecture", "cudaComputeCapability", "driverVersion", "cudaDriverVersion"),
        *(f"{_STANDARD}{name}" for name in ("pciBusID", "pcieRoot", "numaNode")),
        *("multiprocessors", "copyEngines", "decoders", "encoders", "jpegEngines", "ofaEngines"),
        *(f"memorySlice{index}" for index in range(ATTRIBUTES_AND_CAPACITIES)),
    }
)
"""Every attribute and capacity published by ourselves. GPUs have at most 8 memory slices so far, with which all have room."""


def gpu_device(gpu: Gpu, inventory: Inventory) -> Object:
    """A whole GPU."""
    attributes = {
        "type": {"string": "gpu"},
        "uuid": {"string": gpu.uuid},
        **_of_the_board(gpu, inventory),
        **_fabric(gpu),
    }
    capacity = {} if gpu.memory_bytes is None else {"memory": {"value": quantity.canonical(gpu.memory_bytes)}}
    return {"name": gpu.name, "attributes": attributes, "capacity": capacity}


def mig_device(gpu: Gpu, mig: MigDevice, inventory: Inventory) -> Object:
    """An existing MIG device of `gpu`. It has no fabric attributes: NVLink does not reach a partition."""
    profile = mig.profile
    attributes = {
        "type": {"string": "mig"},
        "uuid": {"string": mig.uuid},
        "parentUUID": {"string": mig.parent_uuid},
        "profile": {"string": profile.name},
        **_of_the_board(gpu, inventory),
    }
    amounts = {
        "multiprocessors": profile.multiprocessors,
        "copyEngines": profile.copy_engines,
        "decoders": profile.decoders,
        "encoders": profile.encoders,
        "jpegEngines": profile.jpeg_engines,
        "ofaEngines": profile.ofa_engines,
        "memory": profile.memory_mib * _MIB,
        **{f"memorySlice{index}": 1 for index in mig.placement.slices},
    }
    capacity = {name: {"value": quantity.canonical(amount)} for name, amount in amounts.items()}
    return {"name": mig.name, "attributes": attributes, "capacity": capacity}


def cut_to_attribute(text: str) -> str:
    """The longest beginning of `text` that a string attribute holds, never ending inside a character."""
    return text.encode("utf-8", "surrogatepass")[:STRING_BYTES].decode("utf-8", "ignore")


def _of_the_board(gpu: Gpu, inventory: Inventory) -> dict[str, Object]:
    """What a GPU shares with its partitions.

    A product name that is too long is cut and not left out, since a selector that looks at a missing attribute fails the scheduling of
    its pod on every node.
    """
    values: dict[str, Object | None] = {
        "productName": {"string": cut_to_attribute(gpu.product_name)},
        "brand": _string(gpu.brand),
        "architecture": _string(gpu.architecture),
        "cudaComputeCapability": _cuda_version(gpu.cuda_compute_capability),
        "driverVersion": _driver_version(inventory.driver_version),
        "cudaDriverVersion": _cuda_version(inventory.cuda_driver_version),
        "addressingMode": _string(gpu.addressing_mode),
        f"{_STANDARD}pciBusID": {"string": str(gpu.pci)},
        f"{_STANDARD}pcieRoot": _string(gpu.pcie_root),
        f"{_STANDARD}numaNode": None if gpu.numa_node is None else {"int": gpu.numa_node},
    }
    return {name: value for name, value in values.items() if value is not None}


def _fabric(gpu: Gpu) -> dict[str, Object]:
    if gpu.fabric is None:
        return {}
    return {"fabricClusterUUID": {"string": gpu.fabric.cluster_uuid}, "fabricCliqueID": {"int": gpu.fabric.clique}}


def _string(value: str | None) -> Object | None:
    return None if value is None else {"string": value}


def _cuda_version(version: tuple[int, int] | None) -> Object | None:
    return None if version is None else {"version": f"{version[0]}.{version[1]}.0"}


def _driver_version(version: str | None) -> Object | None:
    if version is None:
        return None
    try:
        return {"version": semver.normalise(version)}
    except ValueError:
        return {"version": version}
