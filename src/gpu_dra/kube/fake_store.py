"""The state behind the API server fake: objects, resourceVersions and the window of history that watches can go back to.

Synchronous and without faults; tests use it as "somebody else who changes the cluster". It behaves as kube-apiserver does where this
project can tell the difference (source: apiserver `registry/rest`, `storage/etcd3`): one counter for all objects, a write that
changes nothing is not a write, status and the rest are written apart, generation counts changes of spec, finalizers hold an object.
It does not know schemas, admission, namespaces as objects, owner-reference garbage collection or graceful pod deletion.
"""

from __future__ import annotations

import copy
import secrets
import string
import time
import uuid
from collections import defaultdict, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from gpu_dra.kube.api import WatchEvent, WatchKind
from gpu_dra.kube.errors import AlreadyExists, Gone, Invalid, NotFound, WriteConflict
from gpu_dra.kube.fake_kinds import api_version, kind_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from gpu_dra.core.clock import Clock
    from gpu_dra.kube.api import Object, Resource

Key: TypeAlias = tuple[str, str]
"""Namespace (empty for cluster-wide objects) and name."""

FIRST_VERSION = 1000
HISTORY = 1000
"""Changes that a watch can go back to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One entry of the history: the object before (None: created) and after (None: deleted)."""

    version: int
    resource: Resource
    before: Object | None
    after: Object | None


class FakeStore:
    """Objects of any resource. Objects given and returned are copies."""

    def __init__(self, *, clock: Clock) -> None:
        self._clock = clock
        self._objects: defaultdict[Resource, dict[Key, Object]] = defaultdict(dict)
        self._version = FIRST_VERSION
        self._history: deque[Change] = deque(maxlen=HISTORY)
        self._forgotten = FIRST_VERSION
        self._listeners: list[Callable[[Change], None]] = []
        self.transforms: list[Callable[[Resource, Object], Object]] = []
        """Applied to every object before it is stored: return it without a field to play a server whose feature gate is off."""
        self.validators: list[Callable[[Resource, Object], None]] = []
        """Called with every object before it is stored: raise Invalid to refuse it."""

    @property
    def version(self) -> str:
        """The resourceVersion of the last write."""
        return str(self._version)

    def get(self, resource: Resource, name: str, *, namespace: str | None = None) -> Object:
        """Raises NotFound."""
        return copy.deepcopy(self._existing(resource, _key(namespace, name)))

    def list(
        self,
        resource: Resource,
        *,
        namespace: str | None = None,
        field_selector: Mapping[str, str] | None = None,
        label_selector: Mapping[str, str] | None = None,
    ) -> tuple[Object, ...]:
        """In order of namespace and name. Raises Invalid for a field that cannot be selected by."""
        matches = matcher(resource, namespace, field_selector, label_selector)
        return tuple(copy.deepcopy(item) for _, item in sorted(self._objects[resource].items()) if matches(item))

    def create(self, resource: Resource, body: Object, *, namespace: str | None = None) -> Object:
        """Raises AlreadyExists, Invalid."""
        made = copy.deepcopy(body)
        metadata = made.setdefault("metadata", {})
        name = metadata.get("name") or _generated(metadata)
        key = _key(namespace, name)
        if key in self._objects[resource]:
            raise AlreadyExists(f'{resource.plural} "{name}" already exists')
        metadata |= {"name": name, "uid": str(uuid.uuid4()), "creationTimestamp": self._now(), "generation": 1}
        if namespace is not None:
            metadata["namespace"] = namespace
        if kind_of(resource).has_status and not kind_of(resource).created_with_status:
            made.pop("status", None)
        return self._write(resource, key, before=None, after=self._admitted(resource, made))

    def update(self, resource: Resource, body: Object, *, namespace: str | None = None) -> Object:
        """Everything but status. Raises NotFound, WriteConflict, Invalid."""
        key, before = self._writable(resource, body, namespace)
        after = copy.deepcopy(body)
        if kind_of(resource).has_status:
            _carry(before, after, "status")
        return self._replace(resource, key, before=before, after=after)

    def update_status(self, resource: Resource, body: Object, *, namespace: str | None = None) -> Object:
        """Nothing but status. Raises NotFound, WriteConflict, Invalid."""
        if not kind_of(resource).has_status:
            raise NotFound(f"{resource.plural} have no status subresource")
        key, before = self._writable(resource, body, namespace)
        after = copy.deepcopy(before)
        _carry(copy.deepcopy(body), after, "status")
        return self._replace(resource, key, before=before, after=after)

    def delete(
        self,
        resource: Resource,
        name: str,
        *,
        namespace: str | None = None,
        uid: str | None = None,
        resource_version: str | None = None,
    ) -> None:
        """Removes the object, or marks it deleted while finalizers hold it. Raises NotFound, WriteConflict."""
        key = _key(namespace, name)
        before = self._existing(resource, key)
        _check(before, "uid", uid)
        _check(before, "resourceVersion", resource_version)
        if not before["metadata"].get("finalizers"):
            self._write(resource, key, before=before, after=None)
        elif "deletionTimestamp" not in before["metadata"]:
            marked = copy.deepcopy(before)
            marked["metadata"]["deletionTimestamp"] = self._now()
            self._write(resource, key, before=before, after=marked)

    def changes_after(self, version: str) -> Iterator[Change]:
        """The history after a resourceVersion. Raises Gone when it reaches further back than is remembered."""
        try:
            start = int(version)
        except ValueError as error:
            raise Invalid(f"invalid resource version {version!r}") from error
        if start < self._forgotten:
            raise Gone(f"too old resource version: {version} ({self._forgotten})")
        return (change for change in list(self._history) if change.version > start)

    def forget_history(self) -> None:
        """Compact: no watch can start from before now."""
        self._version += 1
        self._history.clear()
        self._forgotten = self._version

    def listen(self, listener: Callable[[Change], None]) -> Callable[[], None]:
        """Call `listener` with every change from now on; the returned function ends that."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def _existing(self, resource: Resource, key: Key) -> Object:
        try:
            return self._objects[resource][key]
        except KeyError:
            raise NotFound(f'{resource.plural} "{key[1]}" not found') from None

    def _writable(self, resource: Resource, body: Object, namespace: str | None) -> tuple[Key, Object]:
        key = _key(namespace, body["metadata"]["name"])
        before = self._existing(resource, key)
        _check(before, "uid", body["metadata"].get("uid"))
        _check(before, "resourceVersion", body["metadata"].get("resourceVersion"))
        return key, before

    def _replace(self, resource: Resource, key: Key, *, before: Object, after: Object) -> Object:
        metadata = after["metadata"]
        for name in ("uid", "creationTimestamp", "deletionTimestamp", "generation", "namespace", "resourceVersion"):
            _carry(before["metadata"], metadata, name)
        after = self._admitted(resource, after)
        if after == before:
            return copy.deepcopy(before)
        if after.get("spec") != before.get("spec"):
            after["metadata"]["generation"] += 1
        finished = "deletionTimestamp" in after["metadata"] and not after["metadata"].get("finalizers")
        self._write(resource, key, before=before, after=None if finished else after)
        return copy.deepcopy(after)

    def _admitted(self, resource: Resource, item: Object) -> Object:
        item |= {"apiVersion": api_version(resource), "kind": kind_of(resource).name}
        for transform in self.transforms:
            item = transform(resource, item)
        for validate in self.validators:
            validate(resource, item)
        return item

    def _write(self, resource: Resource, key: Key, *, before: Object | None, after: Object | None) -> Object:
        self._version += 1
        if after is None:
            del self._objects[resource][key]
            last = copy.deepcopy(before or {})
        else:
            self._objects[resource][key] = last = after
        last["metadata"]["resourceVersion"] = str(self._version)
        change = Change(version=self._version, resource=resource, before=last if after is None else before, after=after)
        if len(self._history) == HISTORY:
            self._forgotten = self._history[0].version
        self._history.append(change)
        for listener in list(self._listeners):
            listener(change)
        return copy.deepcopy(last)

    def _now(self) -> str:
        return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self._clock.wall()))


def matcher(
    resource: Resource,
    namespace: str | None,
    field_selector: Mapping[str, str] | None,
    label_selector: Mapping[str, str] | None,
) -> Callable[[Object], bool]:
    """Whether an object is selected. Raises NotFound, and Invalid for a field that the server cannot select by."""
    selectable = kind_of(resource).field_labels | {"metadata.name", "metadata.namespace"}
    fields, labels = dict(field_selector or {}), dict(label_selector or {})
    for name in fields:
        if name not in selectable:
            raise Invalid(f'field label not supported: "{name}"')

    def matches(item: Object) -> bool:
        return (
            (namespace is None or item["metadata"].get("namespace") == namespace)
            and all(_at(item, path) == value for path, value in fields.items())
            and labels.items() <= item["metadata"].get("labels", {}).items()
        )

    return matches


def as_event(change: Change, matches: Callable[[Object], bool]) -> WatchEvent | None:
    """How a watch with a selector sees a change: an object that stops matching is deleted for it, one that begins to is added."""
    was = change.before is not None and matches(change.before)
    if change.after is not None and matches(change.after):
        return WatchEvent(kind=WatchKind.MODIFIED if was else WatchKind.ADDED, object=copy.deepcopy(change.after))
    if not was or change.before is None:
        return None
    last = copy.deepcopy(change.before)
    last["metadata"]["resourceVersion"] = str(change.version)
    return WatchEvent(kind=WatchKind.DELETED, object=last)


def _key(namespace: str | None, name: str) -> Key:
    return namespace or "", name


def _at(item: Object, path: str) -> str:
    value: Any = item
    for part in path.split("."):
        value = value.get(part, {}) if isinstance(value, dict) else {}
    return value if isinstance(value, str) else ""


def _generated(metadata: Object) -> str:
    prefix = metadata.get("generateName")
    if not prefix:
        raise Invalid("metadata.name: Required value: name or generateName is required")
    return str(prefix) + "".join(secrets.choice(string.ascii_lowercase + string.digits) for _ in range(5))


def _carry(source: Object, target: Object, name: str) -> None:
    target.pop(name, None)
    if name in source:
        target[name] = copy.deepcopy(source[name])


def _check(stored: Object, name: str, wanted: str | None) -> None:
    if wanted is not None and wanted != stored["metadata"][name]:
        raise WriteConflict(
            f"the object has been modified: {name} in precondition is {wanted}, of the stored object {stored['metadata'][name]}"
        )
