"""What we ask of the Kubernetes API, as one small interface over plain dicts.

Dicts, because a typed model drops the fields that a newer server sends, so that a read-modify-write would erase them. Two
implementations: `http.HttpKubeApi` (aiohttp) and `fake.FakeKubeApi`; both pass `tests/contract/test_kube_api.py`.
Errors: `kube.errors`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

Object = dict[str, Any]
"""A Kubernetes object as JSON gives it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """A REST resource: group (empty for core), version, plural and whether it lives in namespaces."""

    group: str
    version: str
    plural: str
    namespaced: bool


RESOURCE_CLAIMS = Resource(group="resource.k8s.io", version="v1", plural="resourceclaims", namespaced=True)
RESOURCE_SLICES = Resource(group="resource.k8s.io", version="v1", plural="resourceslices", namespaced=False)
DEVICE_CLASSES = Resource(group="resource.k8s.io", version="v1", plural="deviceclasses", namespaced=False)
NODES = Resource(group="", version="v1", plural="nodes", namespaced=False)
PODS = Resource(group="", version="v1", plural="pods", namespaced=True)
DAEMON_SETS = Resource(group="apps", version="v1", plural="daemonsets", namespaced=True)
EVENTS = Resource(group="", version="v1", plural="events", namespaced=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerVersion:
    """The API server's minor version, e.g. 1.36."""

    major: int
    minor: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectList:
    """A consistent list and the resourceVersion from which a watch goes on."""

    items: tuple[Object, ...]
    resource_version: str


class WatchKind(StrEnum):
    """Types of a watch event; errors are raised, not yielded."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"
    BOOKMARK = "BOOKMARK"


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchEvent:
    """One change."""

    kind: WatchKind
    object: Object


class KubeApi(Protocol):
    """Verbs of the API. `namespace` is required for namespaced resources, except in list and watch, where None means all."""

    async def server_version(self) -> ServerVersion:
        """GET /version."""
        ...

    async def get(self, resource: Resource, name: str, *, namespace: str | None = None) -> Object:
        """One object. Raises NotFound."""
        ...

    async def list(
        self,
        resource: Resource,
        *,
        namespace: str | None = None,
        field_selector: Mapping[str, str] | None = None,
        label_selector: Mapping[str, str] | None = None,
    ) -> ObjectList:
        """All objects that match."""
        ...

    def watch(
        self,
        resource: Resource,
        *,
        resource_version: str,
        namespace: str | None = None,
        field_selector: Mapping[str, str] | None = None,
        label_selector: Mapping[str, str] | None = None,
        timeout_seconds: int = 270,
    ) -> AsyncGenerator[WatchEvent, None]:
        """Changes after `resource_version`, bookmarks included, until the server ends the request. Raises Gone.

        Leave early only through `contextlib.aclosing`, so that the request ends with the loop over it.
        """
        ...

    async def create(self, resource: Resource, body: Object, *, namespace: str | None = None) -> Object:
        """The stored object. Raises AlreadyExists, Invalid."""
        ...

    async def update(self, resource: Resource, body: Object, *, namespace: str | None = None) -> Object:
        """PUT; conditional when the body carries a resourceVersion. Raises NotFound, WriteConflict, Invalid."""
        ...

    async def update_status(self, resource: Resource, body: Object, *, namespace: str | None = None) -> Object:
        """PUT of the status subresource."""
        ...

    async def delete(
        self,
        resource: Resource,
        name: str,
        *,
        namespace: str | None = None,
        uid: str | None = None,
        resource_version: str | None = None,
    ) -> None:
        """Delete, with preconditions when given. Raises NotFound, WriteConflict."""
        ...

    async def close(self) -> None:
        """Give connections back."""
        ...
