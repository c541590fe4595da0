"""Which programs a lab is made of, and how each is built from the Go modules in `hack/go`.

The one place that names a version. `hack/gen/go_modules.py` writes the go.mod files from this table; `build` builds from them.
Tags and stamps are those the projects' own release builds use, less the storage drivers that need C libraries.
"""

from __future__ import annotations

from dataclasses import dataclass, field

KUBERNETES_VERSIONS = {"1.34": "1.34.4", "1.36": "1.36.3", "1.37": "1.37.2"}
DEFAULT_KUBERNETES = "1.37"

_KUBERNETES_PROGRAMS = ("kube-apiserver", "kube-scheduler", "kube-controller-manager", "kube-proxy", "kubelet", "kubectl")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """One Go module under `hack/go` and what `go build` makes of it."""

    name: str
    """Directory below `hack/go`."""
    module: str
    version: str
    programs: dict[str, str]
    """Program name to import path."""
    tags: tuple[str, ...] = ()
    stamps: dict[str, str] = field(default_factory=dict)
    """String variables that the linker sets; unset, the programs report no version."""
    cgo: bool = False

    @property
    def flags(self) -> tuple[str, ...]:
        """Arguments of `go build` that decide what comes out."""
        linker = " ".join(["-s", "-w", *(f"-X {variable}={value}" for variable, value in self.stamps.items())])
        tags = ("-tags", ",".join(self.tags)) if self.tags else ()
        return ("-trimpath", *tags, "-ldflags", linker)


def kubernetes(minor: str) -> Tool:
    """The control plane, kubelet, kube-proxy and kubectl of one minor version such as `1.37`. Raises KeyError when unknown."""
    version = KUBERNETES_VERSIONS[minor]
    major, number = minor.split(".")
    stamp = "k8s.io/component-base/version"
    return Tool(
        name=f"kubernetes-{minor}",
        module="k8s.io/kubernetes",
        version=f"v{version}",
        programs={program: f"k8s.io/kubernetes/cmd/{program}" for program in _KUBERNETES_PROGRAMS},
        stamps={f"{stamp}.gitVersion": f"v{version}", f"{stamp}.gitMajor": major, f"{stamp}.gitMinor": number},
    )


ETCD = Tool(
    name="etcd",
    module="go.etcd.io/etcd/server/v3",
    version="v3.7.3",
    programs={"etcd": "go.etcd.io/etcd/server/v3"},
)

CONTAINERD = Tool(
    name="containerd",
    module="github.com/containerd/containerd/v2",
    version="v2.4.2",
    programs={
        program: f"github.com/containerd/containerd/v2/cmd/{program}"
        for program in ("containerd", "containerd-shim-runc-v2", "ctr")
    },
    tags=("no_btrfs", "no_devmapper", "no_zfs"),
    stamps={"github.com/containerd/containerd/v2/version.Version": "v2.4.2"},
)

RUNC = Tool(
    name="runc",
    module="github.com/opencontainers/runc",
    version="v1.5.3",
    programs={"runc": "github.com/opencontainers/runc"},
    tags=("seccomp",),  # without it every CRI container fails: the default profile cannot be applied
    cgo=True,  # its nsenter is C
)

HELM = Tool(
    name="helm",
    module="helm.sh/helm/v4",
    version="v4.3.1",
    programs={"helm": "helm.sh/helm/v4/cmd/helm"},
    stamps={"helm.sh/helm/v4/internal/version.version": "v4.3.1"},
)


def tools_for(minor: str) -> list[Tool]:
    """Everything that a lab of one Kubernetes version needs."""
    return [ETCD, CONTAINERD, RUNC, HELM, kubernetes(minor)]


def all_tools() -> list[Tool]:
    """Every module of `hack/go`."""
    return [ETCD, CONTAINERD, RUNC, HELM, *(kubernetes(minor) for minor in KUBERNETES_VERSIONS)]
