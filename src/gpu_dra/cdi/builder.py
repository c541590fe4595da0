"""From devices to a CDI spec that a runtime can follow to the end: the door through which claims use this room.

Everything the spec names is looked at on the host before it is handed out. A device node that is missing is made; where that fails, or
the driver's libraries are not there, there is no spec: a container never starts without its GPU. Knows nothing of claims but a UID.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpu_dra.cdi import edits, host_files
from gpu_dra.cdi.driver_cache import DriverFilesCache
from gpu_dra.cdi.naming import CLAIM_KIND, check_uid, device_name
from gpu_dra.cdi.spec import Device, Spec
from gpu_dra.core.errors import NotReady
from gpu_dra.hardware import devnodes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from gpu_dra.cdi.spec import DeviceNode
    from gpu_dra.hardware.devnodes import NodeSpec
    from gpu_dra.hardware.host import HostPaths
    from gpu_dra.model.gpu import Gpu
    from gpu_dra.model.mig import MigDevice


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimDevice:
    """A device of a claim: a whole GPU, or a MIG device and the GPU it is on."""

    name: str
    """In the pool: `gpu-0`."""
    gpu: Gpu
    mig: MigDevice | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltSpec:
    """A spec whose every host path existed when it was built."""

    spec: Spec
    cdi_ids: Mapping[str, tuple[str, ...]]
    """By device name, what the kubelet is told to ask the runtime for."""
    node_paths: tuple[str, ...]
    """Device nodes it names, as on the host's own `/dev`."""
    missing: tuple[str, ...]
    """What its containers will lack, one sentence each; empty when nothing."""


class CdiBuilder:
    """Builds the claims' specs for one host. Blocking; for use from any thread."""

    def __init__(self, host: HostPaths) -> None:
        self._host = host
        self._driver = DriverFilesCache(host)

    def build(self, claim_uid: str, devices: Sequence[ClaimDevice], *, driver_version: str) -> BuiltSpec:
        """The spec for a claim. A device that is named twice, as two shares of a claim do, is in it once.

        `driver_version` is the loaded driver's, as NVML prints it. Raises NotReady when a node or the libraries are not there (yet),
        Broken when something else has their place, Refused for a UID that is none.
        """
        check_uid(claim_uid)
        control = devnodes.control_nodes(self._host)
        nodes = {device.name: self._nodes(device) for device in devices}
        every_node = tuple(dict.fromkeys((*control, *(node for own in nodes.values() for node in own))))
        devnodes.ensure(self._host, every_node)

        hook = host_files.find_hook(self._host)
        pci = {device.name: device.gpu.pci for device in devices}
        own_edits = {name: edits.device_edits(own, pci=pci[name], hook=hook) for name, own in nodes.items()}
        spec = self._spec_that_holds(
            tuple(Device(name=device_name(claim_uid, name), edits=own) for name, own in own_edits.items()),
            control,
            hook,
            driver_version,
        )
        drm = any(map(edits.is_drm, every_node))
        return BuiltSpec(
            spec=spec,
            cdi_ids={name: (spec.cdi_id(device_name(claim_uid, name)),) for name in nodes},
            node_paths=tuple(node.path for node in every_node),
            missing=() if hook is not None else edits.missing_without_hook(host_files.hook_places(self._host), drm=drm),
        )

    def missing_paths(self, spec: Spec) -> tuple[str, ...]:
        """Host paths of a spec that are gone or are something else now, as the runtime calls them. Some dozen stats."""
        every = (spec.edits, *(device.edits for device in spec.devices))
        nodes = (node for own in every for node in own.device_nodes if not self._is_there(node))
        sources = (mount.host_path for own in every for mount in own.mounts)
        programs = (hook.path for own in every for hook in own.hooks)
        paths = dict.fromkeys((*sources, *programs))
        return (*(node.path for node in nodes), *self._absent(paths))

    def _nodes(self, device: ClaimDevice) -> tuple[NodeSpec, ...]:
        if device.mig is None:
            return devnodes.gpu_nodes(self._host, device.gpu)
        return devnodes.mig_nodes(self._host, device.gpu, device.mig)

    def _spec_that_holds(self, devices: tuple[Device, ...], control: Sequence[NodeSpec], hook: str | None, version: str) -> Spec:
        """A spec without missing paths. A driver that is being replaced costs one new scan, then it is waited for."""
        sockets = host_files.find_sockets(self._host)
        for _ in range(2):
            files = self._driver.get(version)
            common = edits.common_edits(files, nodes=control, sockets=sockets, hook=hook)
            spec = Spec(kind=CLAIM_KIND, devices=devices, edits=common)
            missing = self.missing_paths(spec)
            if not missing:
                return spec
            self._driver.forget()
        raise NotReady(
            f"{', '.join(missing)}: not there; waiting for the driver's files below {self._host.host_driver_root} to be complete"
            " (if the path is nvidia-cdi-hook, install NVIDIA's container toolkit or correct --nvidia-cdi-hook-path)"
        )

    def _is_there(self, node: DeviceNode) -> bool:
        try:
            found = os.stat(f"{self._host.dev}/{node.path.removeprefix('/dev/')}")  # noqa: PTH116 - hot path
        except OSError:
            return False
        return stat.S_ISCHR(found.st_mode) and found.st_rdev == os.makedev(node.major, node.minor)

    def _absent(self, paths: Mapping[str, None]) -> Iterator[str]:
        """Those that cannot be found; a path outside the driver root is out of our sight and taken on trust."""
        host_root = str(self._host.host_driver_root).rstrip("/") + "/"
        our_root = str(self._host.driver_root).rstrip("/") + "/"
        for path in paths:
            if path.startswith(host_root) and not os.path.exists(our_root + path.removeprefix(host_root)):  # noqa: PTH110 - hot path
                yield path
