"""Configuration files and command lines of what runs on a node. Pure.

Every path is the default one of its program, since a node has directories of its own (`node_mounts`). So what the product finds on a
node is what it finds on a real one.
"""

from __future__ import annotations

import json
from typing import Any

from hack.testbed.cluster.addresses import Addresses
from hack.testbed.cluster.cgroups import group_of
from hack.testbed.cluster.folder import LabFolder, LabState
from hack.testbed.cluster.packages import CNI_PLUGINS

PAUSE_IMAGE = "gpudra.dev/pause:1"
CONTAINERD_SOCKET = "/run/containerd/containerd.sock"

CONTAINERD_TOML = f"""\
version = 4

[plugins.'io.containerd.internal.v1.opt']
  path = '/var/lib/containerd/opt'

[plugins.'io.containerd.cri.v1.images'.pinned_images]
  sandbox = '{PAUSE_IMAGE}'

[plugins.'io.containerd.cri.v1.runtime']
  cdi_spec_dirs = ['/etc/cdi', '/var/run/cdi']
  # Without CAP_SYS_RESOURCE, as in many virtual machines and containers, runc may not lower a score and dies.
  restrict_oom_score_adj = true

  [plugins.'io.containerd.cri.v1.runtime'.cni]
    bin_dirs = ['{CNI_PLUGINS}']
    conf_dir = '/etc/cni/net.d'

  [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
    runtime_type = 'io.containerd.runc.v2'

    [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
      SystemdCgroup = false
"""


def files(folder: LabFolder, state: LabState, node: str) -> dict[str, str]:
    """Path inside the node to content, of every file that must be there before the node's components start."""
    return {
        "/etc/containerd/config.toml": CONTAINERD_TOML,
        "/etc/cni/net.d/10-pods.conflist": _json(_cni(state.addresses, state.spec.ordinal(node))),
        "/etc/kubernetes/kubelet.yaml": _json(_kubelet(folder, state, node)),
        "/etc/kubernetes/kubelet.kubeconfig": folder.kubeconfig(f"kubelet-{node}").read_text(),
        "/etc/kubernetes/kube-proxy.yaml": _json(_proxy(state, node)),
        "/etc/kubernetes/kube-proxy.kubeconfig": folder.kubeconfig("proxy").read_text(),
        "/etc/hostname": f"{node}\n",
    }


def kubelet_arguments(state: LabState, node: str) -> tuple[str, ...]:
    """What the kubelet takes by flag only."""
    return (
        "--config=/etc/kubernetes/kubelet.yaml",
        "--kubeconfig=/etc/kubernetes/kubelet.kubeconfig",
        f"--hostname-override={node}",
        f"--node-ip={state.addresses.node(state.spec.ordinal(node))}",
    )


PROXY_ARGUMENTS = ("--config=/etc/kubernetes/kube-proxy.yaml",)


def _cni(addresses: Addresses, ordinal: int) -> dict[str, Any]:
    # Point-to-point links: between two pods of a node every packet passes the node's rules, which a bridge would need a kernel module for.
    pods = {
        "type": "ptp",
        "ipMasq": False,
        "ipam": {
            "type": "host-local",
            "ranges": [[{"subnet": str(addresses.pods_of(ordinal))}]],
            "routes": [{"dst": "0.0.0.0/0"}],
            "dataDir": "/run/cni-addresses",  # leases of pods that a power cut ended must not survive it
        },
    }
    return {"cniVersion": "1.0.0", "name": "pods", "plugins": [pods, {"type": "portmap", "capabilities": {"portMappings": True}}]}


def _kubelet(folder: LabFolder, state: LabState, node: str) -> dict[str, Any]:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": f"{folder.pki}/ca.crt"},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": f"{folder.pki}/kubelet.crt",
        "tlsPrivateKeyFile": f"{folder.pki}/kubelet.key",
        "containerRuntimeEndpoint": f"unix://{CONTAINERD_SOCKET}",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": group_of(state.spec.name, node),
        "enforceNodeAllocatable": [],
        "failCgroupV1": False,  # refused by default since 1.35
        "failSwapOn": False,
        "resolvConf": "",  # a node has no way out, and no resolver
        "localStorageCapacityIsolation": False,
        # Nothing can be pulled: an image collected for want of disk space would be gone for good.
        "imageGCHighThresholdPercent": 100,
        "evictionHard": {"imagefs.available": "0%", "nodefs.available": "0%", "nodefs.inodesFree": "0%"},
        "featureGates": parse_gates(state.spec.feature_gates),
    }


def _proxy(state: LabState, node: str) -> dict[str, Any]:
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "iptables",
        "clientConnection": {"kubeconfig": "/etc/kubernetes/kube-proxy.kubeconfig"},
        "clusterCIDR": str(state.addresses.pod_network),
        "hostnameOverride": node,
        "conntrack": {"maxPerCore": 0, "min": 0},  # these limits are the machine's, not the node's
        "featureGates": parse_gates(state.spec.feature_gates),
    }


def parse_gates(flag: str) -> dict[str, bool]:
    """A feature-gate flag as the mapping that configuration files hold."""
    pairs = [item.partition("=") for item in flag.split(",") if item]
    return {name: value.lower() == "true" for name, _, value in pairs}


def _json(data: dict[str, Any]) -> str:
    """JSON, which is YAML."""
    return json.dumps(data, indent=2) + "\n"
