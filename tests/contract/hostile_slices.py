"""Slices at the edge of the API's rules and beyond, each with the verdict of the API server.

One table for both judges: `test_slice_validation.py` asks our validator, `test_slice_validation_real.py` a real API server of 1.36 or
later with its default feature gates.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpu_dra.kube.api import Object

NODE = "hostile-node"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One slice and whether the server takes it."""

    name: str
    spec: Object
    taken: bool


def _spec(*devices: Object, **changes: Any) -> Object:
    base: Object = {
        "driver": "gpu.nvidia.com",
        "nodeName": NODE,
        "pool": {"name": NODE, "generation": 1, "resourceSliceCount": 1},
        "devices": list(devices),
    }
    return {**base, **changes}


def _device(name: str = "gpu-0", **parts: Any) -> Object:
    return {"name": name, **parts}


def _pool(**changes: Any) -> Object:
    return {"pool": {"name": NODE, "generation": 1, "resourceSliceCount": 1, **changes}}


def _attribute(value: Object, name: str = "x") -> Object:
    return _spec(_device(attributes={name: value}))


def _taint(**changes: Any) -> Object:
    return _spec(_device(taints=[{"key": "gpu.nvidia.com/unhealthy", "effect": "NoSchedule", **changes}]))


def _entries(attributes: int, capacities: int) -> Object:
    return _device(
        attributes={f"a{index}": {"int": index} for index in range(attributes)},
        capacity={f"c{index}": {"value": "1"} for index in range(capacities)},
    )


def _many(count: int, **parts: Any) -> Object:
    return _spec(*(_device(f"gpu-{index}", **(parts if index == 0 else {})) for index in range(count)))


_ONE_TAINT = [{"key": "a", "effect": "NoSchedule"}]

TAKEN: dict[str, Object] = {
    "no devices": _spec(),
    "a plain device": _spec(_device()),
    "128 devices": _many(128),
    "64 devices, one with a taint": _many(64, taints=_ONE_TAINT),
    "device name of 63": _spec(_device("g" * 63)),
    "device name of digits": _spec(_device("0")),
    "32 attributes and capacities": _spec(_entries(20, 12)),
    "string of 64 bytes": _attribute({"string": "x" * 64}),
    "string of 64 bytes in fewer characters": _attribute({"string": "é" * 32}),
    "empty string": _attribute({"string": ""}),
    "string with a newline": _attribute({"string": "a\nb"}),
    "largest int": _attribute({"int": 2**63 - 1}),
    "smallest int": _attribute({"int": -(2**63)}),
    "false": _attribute({"bool": False}),
    "version with prerelease and build": _attribute({"version": "580.126.9-rc.1+a.007"}),
    "version of 64": _attribute({"version": "1.0.0+" + "a" * 58}),
    "identifier of 32": _attribute({"int": 1}, "a" * 32),
    "identifier with underscore": _attribute({"int": 1}, "_a_1"),
    "identifier in a domain": _attribute({"int": 1}, "resource.kubernetes.io/pcieRoot"),
    "domain of 63": _attribute({"int": 1}, f"{'d' * 63}/a"),
    "domain in upper case": _attribute({"int": 1}, "Example.COM/a"),
    "capacity in binary": _spec(_device(capacity={"memory": {"value": "81559Mi"}})),
    "capacity as exponent": _spec(_device(capacity={"memory": {"value": "1e3"}})),
    "capacity below zero": _spec(_device(capacity={"memory": {"value": "-1"}})),
    "capacity as a fraction": _spec(_device(capacity={"memory": {"value": "1.5Gi"}})),
    "taint without value": _taint(),
    "taint with value": _taint(value="XID_79.a"),
    "taint with effect None": _taint(effect="None"),
    "taint with effect NoExecute": _taint(effect="NoExecute"),
    "16 taints": _spec(_device(taints=[{"key": f"k{index}", "effect": "NoSchedule"} for index in range(16)])),
    "pool of several parts": _spec(_device(), **_pool(name="rack-1/a.b")),
    "generation 0": _spec(_device(), **_pool(generation=0)),
    "driver in upper case": _spec(_device(), driver="GPU.nvidia.com"),
    "driver of 63": _spec(_device(), driver="d" * 63),
}

REFUSED: dict[str, Object] = {
    "129 devices": _many(129),
    "65 devices, one with a taint": _many(65, taints=_ONE_TAINT),
    "two devices of one name": _spec(_device("a"), _device("a")),
    "device name of 64": _spec(_device("g" * 64)),
    "device name in upper case": _spec(_device("GPU-0")),
    "device name with a dot": _spec(_device("gpu.0")),
    "device name that ends in a dash": _spec(_device("gpu-")),
    "empty device name": _spec(_device("")),
    "33 attributes and capacities": _spec(_entries(20, 13)),
    "string of 65 bytes": _attribute({"string": "x" * 65}),
    "string of 66 bytes in 33 characters": _attribute({"string": "é" * 33}),
    "int beyond 64 bits": _attribute({"int": 2**63}),
    "int that is a text": _attribute({"int": "1"}),
    "bool that is an int": _attribute({"bool": 1}),
    "string that is a number": _attribute({"string": 1}),
    "no value": _attribute({}),
    "two values": _attribute({"int": 1, "string": "a"}),
    "version with a leading zero": _attribute({"version": "580.126.09"}),
    "version of two numbers": _attribute({"version": "580.142"}),
    "version of four numbers": _attribute({"version": "6.19.14.31400000"}),
    "version with a v": _attribute({"version": "v1.2.3"}),
    "empty version": _attribute({"version": ""}),
    "version of 65": _attribute({"version": "1.0.0+" + "a" * 59}),
    "identifier of 33": _attribute({"int": 1}, "a" * 33),
    "identifier with a dash": _attribute({"int": 1}, "pcie-root"),
    "identifier that begins with a digit": _attribute({"int": 1}, "1a"),
    "identifier outside ASCII": _attribute({"int": 1}, "größe"),
    "empty identifier": _attribute({"int": 1}, ""),
    "domain without identifier": _attribute({"int": 1}, "example.com/"),
    "identifier without domain": _attribute({"int": 1}, "/a"),
    "domain of 64": _attribute({"int": 1}, f"{'d' * 64}/a"),
    "domain with an underscore": _attribute({"int": 1}, "exam_ple.com/a"),
    "capacity with a bad name": _spec(_device(capacity={"mem-ory": {"value": "1"}})),
    "capacity that is no quantity": _spec(_device(capacity={"memory": {"value": "lots"}})),
    "capacity with a space": _spec(_device(capacity={"memory": {"value": "80 Gi"}})),
    "taint without key": _taint(key=""),
    "taint key with a space": _taint(key="a b"),
    "taint key with an empty prefix": _taint(key="/a"),
    "taint key of 64": _taint(key="k" * 64),
    "taint value with a space": _taint(value="fell off the bus"),
    "taint value of 64": _taint(value="v" * 64),
    "taint effect of nodes": _taint(effect="PreferNoSchedule"),
    "empty taint effect": _taint(effect=""),
    "17 taints": _spec(_device(taints=[{"key": f"k{index}", "effect": "NoSchedule"} for index in range(17)])),
    "generation below zero": _spec(_device(), **_pool(generation=-1)),
    "slice count 0": _spec(_device(), **_pool(resourceSliceCount=0)),
    "pool name with an empty part": _spec(_device(), **_pool(name="a//b")),
    "pool name in upper case": _spec(_device(), **_pool(name="Rack")),
    "empty pool name": _spec(_device(), **_pool(name="")),
    "pool name of 254": _spec(_device(), **_pool(name="/".join(["p" * 63] * 3 + ["p" * 62]))),
    "driver of 64": _spec(_device(), driver="d" * 64),
    "driver with an underscore": _spec(_device(), driver="gpu_nvidia.com"),
    "empty driver": _spec(_device(), driver=""),
    "node name in upper case": _spec(_device(), nodeName="Node"),
    "node name of 254": _spec(_device(), nodeName=".".join(["n" * 63] * 3 + ["n" * 62])),
    "empty node name": _spec(_device(), nodeName=""),
}

CASES = tuple(
    Case(name=name, spec=spec, taken=taken) for table, taken in ((TAKEN, True), (REFUSED, False)) for name, spec in table.items()
)
