"""The Container Device Interface file: a frozen model that cannot hold an invalid spec, and its JSON.

Contract: the CDI specification (`SPEC.md` and `specs-go/version.go` of tags.cncf.io/container-device-interface, 0.3.0 to 1.1.0). A
runtime refuses a file with an unknown field, a device without edits, or a version newer than its own library; so only fields we
write exist here, and the version is the lowest that the content needs. Knows nothing of GPUs.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from gpu_dra.core.errors import Broken

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

# SPEC.md: vendor and class start with a letter and end alphanumeric; a device name may also start with a digit and hold a colon.
_VENDOR: Final = re.compile(r"[A-Za-z](?:[A-Za-z0-9_.-]{0,251}[A-Za-z0-9])?")
_CLASS: Final = re.compile(r"[A-Za-z](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
_DEVICE_NAME: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.:-]*[A-Za-z0-9])?")
_NODE_TYPES: Final = frozenset({"b", "c", "u", "p"})
_HOOK_NAMES: Final = frozenset({"prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop"})
_NEXT_LINE: Final = ",\n"
_encode = json.JSONEncoder(ensure_ascii=False).encode


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceNode:
    """A device node the runtime makes in the container and allows in its device cgroup."""

    path: str
    type: str = "c"
    major: int
    """With type and major given, the runtime never looks the node up itself (`DeviceNode.fillInfo`)."""
    minor: int
    file_mode: int = 0o666
    """Permission bits only."""
    permissions: str = "rwm"
    host_path: str | None = None
    """Only where it differs from `path`."""
    gid: int | None = None

    def __post_init__(self) -> None:
        _require_absolute("device node", self.path)
        if self.type not in _NODE_TYPES:
            raise ValueError(f"device node {self.path}: type {self.type!r} is not one of b, c, u, p")
        if not set(self.permissions) <= set("rwm"):
            raise ValueError(f"device node {self.path}: permissions {self.permissions!r} are not made of r, w and m")
        if self.major < 0 or self.minor < 0:
            raise ValueError(f"device node {self.path}: negative device number")


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """A bind mount. At an existing path of the image it takes that path's place."""

    host_path: str
    container_path: str
    options: tuple[str, ...]

    def __post_init__(self) -> None:
        _require_absolute("mount source", self.host_path)
        _require_absolute("mount target", self.container_path)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hook:
    """A program the runtime runs in its own namespace at a moment of the container's life (OCI runtime hooks)."""

    hook_name: str
    path: str
    args: tuple[str, ...] = ()
    """With `args[0]` the program's name, as in execve(2)."""
    env: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.hook_name not in _HOOK_NAMES:
            raise ValueError(f"hook {self.path}: {self.hook_name!r} is no moment of the OCI runtime")
        _require_absolute("hook", self.path)
        _require_environment(self.env)


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerEdits:
    """What is added to a container."""

    env: tuple[str, ...] = ()
    device_nodes: tuple[DeviceNode, ...] = ()
    mounts: tuple[Mount, ...] = ()
    hooks: tuple[Hook, ...] = ()
    additional_gids: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        _require_environment(self.env)

    @property
    def is_empty(self) -> bool:
        """True when a runtime would refuse a device for having it."""
        return not (self.env or self.device_nodes or self.mounts or self.hooks or self.additional_gids)


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A device of the file, asked for as `kind=name`."""

    name: str
    edits: ContainerEdits

    def __post_init__(self) -> None:
        if not _DEVICE_NAME.fullmatch(self.name):
            raise ValueError(f"{self.name!r} is not a CDI device name: letters, digits and _ . : - between alphanumeric ends")
        if self.edits.is_empty:
            raise ValueError(f"device {self.name} has no edits; a runtime refuses the whole file for it")


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """One CDI file. Constructing an invalid one raises ValueError that names the broken rule."""

    kind: str
    devices: tuple[Device, ...]
    edits: ContainerEdits
    """Applied once to a container that uses any of the devices."""

    def __post_init__(self) -> None:
        vendor, _, class_ = self.kind.partition("/")
        if not (_VENDOR.fullmatch(vendor) and _CLASS.fullmatch(class_)):
            raise ValueError(f"{self.kind!r} is not a CDI kind such as vendor.example/class")
        if not self.devices:
            raise ValueError(f"a {self.kind} spec needs at least one device")
        if len({device.name for device in self.devices}) < len(self.devices):
            raise ValueError(f"a device name appears twice in one {self.kind} spec")

    @property
    def cdi_version(self) -> str:
        """The lowest version that has every field in use (`specs-go/version.go`, MinimumRequiredVersion)."""
        every = (self.edits, *(device.edits for device in self.devices))
        if any(edits.additional_gids for edits in every):
            return "0.7.0"
        if "." in self.kind.partition("/")[2]:
            return "0.6.0"
        names_host_path = any(node.host_path for edits in every for node in edits.device_nodes)
        if names_host_path or any(device.name[0].isdigit() for device in self.devices):
            return "0.5.0"
        return "0.3.0"

    def cdi_id(self, device: str) -> str:
        """The fully qualified name by which a runtime is asked for a device of this file."""
        return f"{self.kind}={device}"

    def to_json(self) -> bytes:
        """The file's content, one entry a line so that `cat` is enough to read it; equal specs give equal bytes."""
        devices = [f'{{"name": {_encode(device.name)}, "containerEdits": {_edits_text(device.edits)}}}' for device in self.devices]
        members = [
            f'"cdiVersion": "{self.cdi_version}"',
            f'"kind": {_encode(self.kind)}',
            _list_text("devices", devices),
            *([] if self.edits.is_empty else [f'"containerEdits": {_edits_text(self.edits)}']),
        ]
        return f"{{{_NEXT_LINE.join(members)}}}\n".encode()


def parse(content: bytes) -> Spec:
    """Read a file that this product wrote, in this version or another; unknown fields are passed over. Raises Broken with the reason."""
    try:
        document = json.loads(content)
        devices = [Device(name=entry["name"], edits=_edits(entry["containerEdits"])) for entry in document["devices"]]
        return Spec(kind=document["kind"], devices=tuple(devices), edits=_edits(document.get("containerEdits", {})))
    except KeyError as error:
        raise Broken(f"CDI spec lacks the field {error.args[0]!r}") from error
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise Broken(f"not a CDI spec of ours: {error}") from error


def _edits_text(edits: ContainerEdits) -> str:
    rows: dict[str, list[str]] = {
        "env": [_encode(entry) for entry in edits.env],
        "deviceNodes": [_encode(_node_fields(node)) for node in edits.device_nodes],
        "mounts": [
            _encode({"hostPath": mount.host_path, "containerPath": mount.container_path, "options": mount.options})
            for mount in edits.mounts
        ],
        "hooks": [
            _encode({"hookName": hook.hook_name, "path": hook.path, "args": hook.args, "env": hook.env}) for hook in edits.hooks
        ],
        "additionalGids": [str(gid) for gid in edits.additional_gids],
    }
    return "{" + _NEXT_LINE.join(_list_text(key, entries) for key, entries in rows.items() if entries) + "}"


def _list_text(key: str, entries: Iterable[str]) -> str:
    return f'"{key}": [\n{_NEXT_LINE.join(entries)}]'


def _node_fields(node: DeviceNode) -> dict[str, Any]:
    host_path = {} if node.host_path is None else {"hostPath": node.host_path}
    gid = {} if node.gid is None else {"gid": node.gid}
    numbers = {"type": node.type, "major": node.major, "minor": node.minor, "fileMode": node.file_mode}
    return {"path": node.path, **host_path, **numbers, "permissions": node.permissions, **gid}


def _edits(fields: Mapping[str, Any]) -> ContainerEdits:
    return ContainerEdits(
        env=tuple(fields.get("env", ())),
        device_nodes=tuple(_node(node) for node in fields.get("deviceNodes", ())),
        mounts=tuple(
            Mount(host_path=mount["hostPath"], container_path=mount["containerPath"], options=tuple(mount.get("options", ())))
            for mount in fields.get("mounts", ())
        ),
        hooks=tuple(
            Hook(hook_name=hook["hookName"], path=hook["path"], args=tuple(hook.get("args", ())), env=tuple(hook.get("env", ())))
            for hook in fields.get("hooks", ())
        ),
        additional_gids=tuple(fields.get("additionalGids", ())),
    )


def _node(fields: Mapping[str, Any]) -> DeviceNode:
    return DeviceNode(
        path=fields["path"],
        type=fields["type"],
        major=fields["major"],
        minor=fields.get("minor", 0),
        file_mode=fields.get("fileMode", 0o666),
        permissions=fields.get("permissions", "rwm"),
        host_path=fields.get("hostPath"),
        gid=fields.get("gid"),
    )


def _require_absolute(what: str, path: str) -> None:
    if not path.startswith("/"):
        raise ValueError(f"{what} {path!r} is not an absolute path")


def _require_environment(env: tuple[str, ...]) -> None:
    for entry in env:
        if entry.find("=") < 1:
            raise ValueError(f"environment entry {entry!r} is not KEY=VALUE")
