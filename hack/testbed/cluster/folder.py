"""The folder that holds all of a lab's state, and the locks that keep two commands from changing it at once.

    <labs>/<lab>/lab.json        what was asked for, and the index of its addresses
                 process/*.json  one record per process that was started, see `processes`
                 pki/ kubeconfig/ etcd/ log/
                 node/<node>/    what the node keeps: config, /etc and /var as written by it, kubelet, containerd, host tree

Locks are taken on directories, so no lock file is left behind.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hack.testbed.cluster.addresses import Addresses
from hack.testbed.cluster.errors import LabError
from hack.testbed.cluster.spec import LabSpec, check_lab_name

_DEFAULT_LABS = "/var/tmp/gpu-dra-labs"  # on disk, and short: socket paths hold 107 characters


def labs_folder() -> Path:
    """`$GPU_DRA_LABS`, else a folder that survives a reboot."""
    return Path(os.environ.get("GPU_DRA_LABS") or _DEFAULT_LABS).absolute()


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFolder:
    """Paths of one node."""

    path: Path

    @property
    def host_tree(self) -> Path:
        """The mocked machine, see `hack/testbed/mock_host.py`."""
        return self.path / "host"

    @property
    def request(self) -> Path:
        """What `node_init` is told."""
        return self.path / "init.json"

    @property
    def boot_id(self) -> Path:
        """The boot id that the node shows, new at each boot."""
        return self.path / "boot-id"

    @property
    def ready(self) -> Path:
        """Exists once the node's namespaces are furnished; removed before each boot."""
        return self.path / "ready"

    @property
    def images_loaded(self) -> Path:
        """Archives that were imported, one a line."""
        return self.path / "images-loaded"


@dataclass(frozen=True, slots=True, kw_only=True)
class LabFolder:
    """Paths of one lab."""

    path: Path

    @classmethod
    def of(cls, name: str) -> LabFolder:
        """Raises LabError when the name cannot be a lab's."""
        check_lab_name(name)
        return cls(path=labs_folder() / name)

    @property
    def marker(self) -> str:
        """Environment entry that every process of the lab carries, so that `down` finds those that no record names."""
        return f"GPU_DRA_LAB={self.path}"

    @property
    def state(self) -> Path:
        return self.path / "lab.json"

    @property
    def processes(self) -> Path:
        return self.path / "process"

    @property
    def pki(self) -> Path:
        return self.path / "pki"

    @property
    def logs(self) -> Path:
        return self.path / "log"

    def log(self, component: str) -> Path:
        return self.logs / f"{component}.log"

    def kubeconfig(self, user: str) -> Path:
        return self.path / "kubeconfig" / user

    def node(self, name: str) -> NodeFolder:
        return NodeFolder(path=self.path / "node" / name)


@dataclass(frozen=True, slots=True, kw_only=True)
class LabState:
    """What is remembered of a lab."""

    spec: LabSpec
    addresses: Addresses


def load_state(folder: LabFolder) -> LabState | None:
    """The lab's state; None where there is none. Raises LabError when it cannot be read."""
    try:
        data = json.loads(folder.state.read_text())
        spec = LabSpec.from_json(data["spec"])
        return LabState(spec=spec, addresses=Addresses(lab=spec.name, index=data["index"]))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise LabError(
            f"{folder.state} cannot be read ({error}); remove the lab: hack/cluster down --name {folder.path.name}"
        ) from error


def save_state(folder: LabFolder, state: LabState) -> None:
    write_json(folder.state, {"spec": state.spec.to_json(), "index": state.addresses.index})


def held_indices(*, but: LabFolder) -> set[int]:
    """Indices of all other labs. A lab whose state is damaged holds none; the routes of what still runs speak for it."""
    held = set()
    for path in labs_folder().glob("*/lab.json"):
        with contextlib.suppress(LabError):
            state = load_state(LabFolder(path=path.parent))
            if state is not None and path.parent != but.path:
                held.add(state.addresses.index)
    return held


def write_json(path: Path, data: dict[str, Any]) -> None:
    """Replace a file by rename, so that a reader never sees half of it."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    temporary.write_text(json.dumps(data, indent=2) + "\n")
    temporary.rename(path)


@contextlib.contextmanager
def locked_labs() -> Iterator[None]:
    """Held while an index is chosen."""
    folder = labs_folder()
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = _flock(folder)
    try:
        yield
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def locked_lab(folder: LabFolder) -> Iterator[None]:
    """Held while a lab is changed. Creates the lab's folder, private to root."""
    while True:
        folder.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        # A `down` that held the lock before us may remove the folder before we open it, or while we wait for the lock.
        with contextlib.suppress(FileNotFoundError):
            descriptor = _flock(folder.path)
            if _is_at(descriptor, folder.path):
                break
            os.close(descriptor)
    try:
        yield
    finally:
        os.close(descriptor)


def _flock(path: Path) -> int:
    """Descriptor of a locked directory; closing it unlocks. Raises FileNotFoundError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _is_at(descriptor: int, path: Path) -> bool:
    return path.exists() and os.path.samestat(path.stat(), os.fstat(descriptor))
