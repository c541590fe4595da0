"""CEL selectors evaluated offline, on devices in the shape of `resource.k8s.io/v1`, as kube-scheduler evaluates them.

An oracle for our own DeviceClasses, not for users' CEL: there are no cost limits, and of Kubernetes' libraries only `quantity` with its
comparisons. An unknown attribute domain is an empty map and an unknown name in it an error, as in the scheduler (source:
`k8s.io/dynamic-resource-allocation/cel/compile.go`); what stops a pod from being scheduled raises here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cel_expr_python import cel
from cel_expr_python.ext import ext_bindings, ext_optional, ext_strings
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from gpu_dra.model import quantity

if TYPE_CHECKING:
    from collections.abc import Callable

DOMAINS = ("gpu.nvidia.com", "resource.kubernetes.io")
"""Filled in where a device lacks them: the library takes only plain dicts, so a map that answers for any domain is not possible."""


def _quantity_message() -> tuple[descriptor_pool.DescriptorPool, Any]:
    """A message of its own, so that the checker tells a quantity from a string."""
    file = descriptor_pb2.FileDescriptorProto(name="quantity.proto", package="kubernetes", syntax="proto3")
    field = file.message_type.add(name="Quantity").field.add(name="text", number=1)
    field.type, field.label = field.TYPE_STRING, field.LABEL_OPTIONAL
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return pool, message_factory.GetMessageClass(pool.FindMessageTypeByName("kubernetes.Quantity"))


_POOL, _Quantity = _quantity_message()
_QUANTITY = cel.Type("kubernetes.Quantity")


def _new_quantity(text: str) -> Any:
    quantity.parse(text)
    return _Quantity(text=text)


def _compare(left: Any, right: Any) -> int:
    first, second = quantity.parse(left.text), quantity.parse(right.text)
    return (first > second) - (first < second)


def _function(name: str, returns: Any, takes: list[Any], act: Callable[..., Any], *, member: bool = False) -> Any:
    return cel.FunctionDecl(name, [cel.Overload(f"{name}_overload", returns, takes, is_member=member, impl=act)])


_ENVIRONMENT = cel.NewEnv(
    _POOL,
    variables={"device": cel.Type.Map(cel.Type.STRING, cel.Type.DYN)},
    extensions=[ext_optional.ExtOptional(), ext_bindings.ExtBindings(), ext_strings.ExtStrings()],
    functions=[
        _function("quantity", _QUANTITY, [cel.Type.STRING], _new_quantity),
        _function("compareTo", cel.Type.INT, [_QUANTITY, _QUANTITY], _compare, member=True),
    ],
)


class Selector:
    """One compiled expression. Raises what the library raises for an expression that does not compile."""

    def __init__(self, expression: str) -> None:
        self._compiled = _ENVIRONMENT.compile(expression)

    def matches(self, device: dict[str, Any], *, driver: str = "gpu.nvidia.com") -> bool:
        """Whether a device of `driver` is selected. Raises ValueError where the scheduler would fail the pod."""
        value = self._compiled.eval(data={"device": _variable(device, driver)}).plain_value()
        match value:
            case bool():
                return value
            case _:
                raise ValueError(f"gives {value!r} and not true or false")


def _variable(device: dict[str, Any], driver: str) -> dict[str, Any]:
    attributes: dict[str, dict[str, Any]] = {domain: {} for domain in (driver, *DOMAINS)}
    capacity: dict[str, dict[str, Any]] = {domain: {} for domain in (driver, *DOMAINS)}
    for name, value in device.get("attributes", {}).items():
        domain, _, own = name.rpartition("/")
        (attributes[domain or driver][own],) = value.values()
    for name, value in device.get("capacity", {}).items():
        domain, _, own = name.rpartition("/")
        capacity[domain or driver][own] = _Quantity(text=value["value"])
    return {"driver": driver, "attributes": attributes, "capacity": capacity}
