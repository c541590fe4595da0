"""The API's REST conventions: a call as RBAC names it, its path, its selectors.

Pure. Source: Kubernetes API concepts ("resource URIs", "field selectors"). Shared by the client, the fake and the fake's HTTP face, so
that all three name a call in the same words.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING
from urllib.parse import quote

from gpu_dra.kube.api import Resource

if TYPE_CHECKING:
    from collections.abc import Mapping

VERSION = Resource(group="", version="", plural="version", namespaced=False)
"""The non-resource URL `/version`, in the shape of a resource so that calls to it are named, counted and failed like others."""


class Verb(StrEnum):
    """Verbs as RBAC rules spell them."""

    GET = "get"
    LIST = "list"
    WATCH = "watch"
    CREATE = "create"
    UPDATE = "update"
    DELETE = "delete"


METHODS = {
    Verb.GET: "GET",
    Verb.LIST: "GET",
    Verb.WATCH: "GET",
    Verb.CREATE: "POST",
    Verb.UPDATE: "PUT",
    Verb.DELETE: "DELETE",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request: what is done to what. `name` is None for list, watch and create."""

    verb: Verb
    resource: Resource
    namespace: str | None = None
    name: str | None = None
    subresource: str | None = None

    @property
    def right(self) -> str:
        """The resource as an RBAC rule names it, with its group: `resourceclaims/status.resource.k8s.io`."""
        plural = self.resource.plural if self.subresource is None else f"{self.resource.plural}/{self.subresource}"
        return f"{plural}.{self.resource.group}" if self.resource.group else plural

    @property
    def path(self) -> str:
        """The URL path. Raises ValueError when a namespaced object is named without its namespace."""
        if self.resource.namespaced and self.namespace is None and self.verb not in (Verb.LIST, Verb.WATCH):
            raise ValueError(f"{self}: {self.resource.plural} live in namespaces, and none was given")
        parts = [_root(self.resource)]
        if self.resource.namespaced and self.namespace is not None:
            parts += ["namespaces", quote(self.namespace, safe="")]
        if self.resource.version:
            parts.append(self.resource.plural)
        if self.name is not None:
            parts.append(quote(self.name, safe=""))
        if self.subresource is not None:
            parts.append(self.subresource)
        return "/".join(parts)

    def __str__(self) -> str:
        target = "/".join(part for part in (self.namespace, self.name) if part)
        return f"{self.verb} {self.right} {target}".rstrip()


def _root(resource: Resource) -> str:
    if not resource.version:
        return f"/{resource.plural}"
    return f"/apis/{resource.group}/{resource.version}" if resource.group else f"/api/{resource.version}"


def format_selector(selector: Mapping[str, str]) -> str:
    """`{"spec.nodeName": "a"}` → `spec.nodeName=a`: equality, joined by commas."""
    return ",".join(f"{key}={value}" for key, value in selector.items())


def parse_selector(text: str) -> dict[str, str]:
    """The inverse of `format_selector`; `==` is accepted too. Raises ValueError for set-based terms, which this project never sends."""
    selector: dict[str, str] = {}
    for term in filter(None, text.split(",")):
        key, equals, value = term.partition("=")
        if not equals or key.endswith("!"):
            raise ValueError(f"selector term {term!r}: only key=value is understood")
        selector[key] = value.removeprefix("=")
    return selector


def selector_query(*, field_selector: Mapping[str, str] | None, label_selector: Mapping[str, str] | None) -> dict[str, str]:
    """Query parameters of a list or watch; a selector that is not given is not sent."""
    query: dict[str, str] = {}
    if field_selector:
        query["fieldSelector"] = format_selector(field_selector)
    if label_selector:
        query["labelSelector"] = format_selector(label_selector)
    return query
