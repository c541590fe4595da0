"""Everything an operator can set on `gpu-dra node`, as one frozen object."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from gpu_dra.hardware.host import HostPaths


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSettings:
    """Flags and environment of the node plugin after parsing; `cli/node.py` says what each means."""

    node_name: str
    host: HostPaths = field(default_factory=HostPaths)
    cdi_root: Path = Path("/var/run/cdi")
    plugins_directory: Path = Path("/var/lib/kubelet/plugins")
    registrar_directory: Path = Path("/var/lib/kubelet/plugins_registry")
    pod_uid: str = ""
    """UID of the pod we run in; gives this process socket names of its own, so that two overlap in a rolling update."""
    kubeconfig: Path | None = None
    http_endpoint: str = ""
    """`host:port` for /metrics, /healthz and /readyz; empty turns them off."""
    healthcheck_port: int = -1
    """TCP port of grpc.health.v1; negative turns it off, 0 takes a free one."""
    beside_device_plugin: bool = False
    """NVIDIA's device plugin on this node offers other GPUs than we do, and is no reason to offer nothing."""
    report_to_node: bool = False
    """Keep a condition on the Node object and write Events about it; needs the rights to."""
    daemonset: str = ""
    """`namespace/name` of the DaemonSet we belong to: when it is gone as we stop, we were uninstalled and leave nothing behind."""
    simulate: str = ""
    """Name of a simulated machine; empty uses the node's NVML."""
