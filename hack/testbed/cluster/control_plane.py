"""Command lines of the control plane. Pure; `lab` starts them.

All components listen on their default ports, on addresses that are the lab's alone. Flags follow the Kubernetes documentation of each
program; those that are there for the test bed say why.
"""

from __future__ import annotations

from hack.testbed.cluster.addresses import SERVICE_NETWORK
from hack.testbed.cluster.bootstrap import Toolbox
from hack.testbed.cluster.folder import LabFolder, LabState

ETCD, APISERVER, CONTROLLER_MANAGER, SCHEDULER = "etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"
PROGRAMS = (ETCD, APISERVER, CONTROLLER_MANAGER, SCHEDULER)


def commands(folder: LabFolder, state: LabState, programs: Toolbox) -> dict[str, tuple[str, ...]]:
    """Command of each component, in the order of their start."""
    return {
        ETCD: (programs[ETCD], *_etcd(folder, state)),
        APISERVER: (programs[APISERVER], *_apiserver(folder, state)),
        CONTROLLER_MANAGER: (programs[CONTROLLER_MANAGER], *_controller_manager(folder, state)),
        SCHEDULER: (programs[SCHEDULER], *_scheduler(folder, state)),
    }


def _etcd(folder: LabFolder, state: LabState) -> list[str]:
    client, peer = (f"http://{state.addresses.loopback}:{port}" for port in (2379, 2380))
    return [
        f"--data-dir={folder.path}/etcd",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
        "--unsafe-no-fsync",  # a lab's data need not survive a power cut
    ]


def _apiserver(folder: LabFolder, state: LabState) -> list[str]:
    pki, gateway = folder.pki, state.addresses.gateway
    return [
        f"--etcd-servers=http://{state.addresses.loopback}:2379",
        f"--bind-address={gateway}",
        f"--advertise-address={gateway}",
        "--secure-port=6443",
        f"--service-cluster-ip-range={SERVICE_NETWORK}",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={pki}/service-account.pub",
        f"--service-account-signing-key-file={pki}/service-account.key",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        f"--token-auth-file={pki}/tokens.csv",
        f"--client-ca-file={pki}/ca.crt",
        f"--tls-cert-file={pki}/apiserver.crt",
        f"--tls-private-key-file={pki}/apiserver.key",
        "--allow-privileged",
        f"--kubelet-certificate-authority={pki}/ca.crt",
        f"--kubelet-client-certificate={pki}/kubelet-client.crt",
        f"--kubelet-client-key={pki}/kubelet-client.key",
        "--kubelet-preferred-address-types=InternalIP",  # node names do not resolve
        "--enable-aggregator-routing",  # this machine has no kube-proxy: webhooks are reached at their pods, not at the Service address
        *([f"--runtime-config={state.spec.runtime_config}"] if state.spec.runtime_config else []),
        *_gates(state),
    ]


def _controller_manager(folder: LabFolder, state: LabState) -> list[str]:
    return [
        f"--kubeconfig={folder.kubeconfig('controller-manager')}",
        f"--bind-address={state.addresses.loopback}",
        "--use-service-account-credentials",
        "--kube-api-qps=200",  # the default of 20 makes the start of its forty controllers take five seconds
        "--kube-api-burst=400",
        f"--service-account-private-key-file={folder.pki}/service-account.key",
        f"--root-ca-file={folder.pki}/ca.crt",
        f"--cluster-signing-cert-file={folder.pki}/ca.crt",
        f"--cluster-signing-key-file={folder.pki}/ca.key",
        "--leader-elect=false",  # there is one, and waiting for a lease costs seconds at each start
        *_gates(state),
    ]


def _scheduler(folder: LabFolder, state: LabState) -> list[str]:
    kubeconfig = folder.kubeconfig("scheduler")
    return [f"--kubeconfig={kubeconfig}", f"--bind-address={state.addresses.loopback}", "--leader-elect=false", *_gates(state)]


def _gates(state: LabState) -> list[str]:
    return [f"--feature-gates={state.spec.feature_gates}"] if state.spec.feature_gates else []
