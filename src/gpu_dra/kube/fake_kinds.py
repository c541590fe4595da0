"""What the API server fake knows of each resource (source: OpenAPI and field selectors of Kubernetes 1.34 to 1.37)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpu_dra.kube.errors import NotFound

if TYPE_CHECKING:
    from gpu_dra.kube.api import Resource


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A served resource. `field_labels`: what can be selected by besides metadata.name and metadata.namespace.

    `has_status`: there is a status subresource, and a plain update leaves the status alone; `created_with_status`: a create does not.
    """

    name: str
    namespaced: bool
    has_status: bool = False
    created_with_status: bool = False
    field_labels: frozenset[str] = frozenset()


KINDS = {
    "configmaps": Kind(name="ConfigMap", namespaced=True),
    "daemonsets": Kind(name="DaemonSet", namespaced=True, has_status=True),
    "deviceclasses": Kind(name="DeviceClass", namespaced=False),
    "events": Kind(
        name="Event",
        namespaced=True,
        field_labels=frozenset({"involvedObject.kind", "involvedObject.name", "involvedObject.uid", "reason", "type"}),
    ),
    "gpunodes": Kind(name="GpuNode", namespaced=False, has_status=True),
    "leases": Kind(name="Lease", namespaced=True),
    "namespaces": Kind(name="Namespace", namespaced=False, has_status=True),
    "nodes": Kind(name="Node", namespaced=False, has_status=True, created_with_status=True),
    "pods": Kind(name="Pod", namespaced=True, has_status=True, field_labels=frozenset({"spec.nodeName", "status.phase"})),
    "resourceclaims": Kind(name="ResourceClaim", namespaced=True, has_status=True),
    "resourceclaimtemplates": Kind(name="ResourceClaimTemplate", namespaced=True),
    "resourceslices": Kind(name="ResourceSlice", namespaced=False, field_labels=frozenset({"spec.nodeName", "spec.driver"})),
}


def kind_of(resource: Resource) -> Kind:
    """Raises NotFound, as a server does that does not serve this API."""
    try:
        return KINDS[resource.plural]
    except KeyError:
        raise NotFound(f"the server could not find the requested resource {resource.plural!r}") from None


def api_version(resource: Resource) -> str:
    """`apiVersion` of its objects."""
    return f"{resource.group}/{resource.version}" if resource.group else resource.version
