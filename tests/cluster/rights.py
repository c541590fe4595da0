"""A lab with the chart's accounts, rights and policies and nothing of it that runs: asked over HTTPS with tokens as pods have them.

The nodes other than `REAL_NODE` are objects without a kubelet, and so are the pods that are bound to them: to the API server a token is
one of a node as soon as its pod is bound there.
"""

from __future__ import annotations

import contextlib
import json
import ssl
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import yaml

from hack.testbed.chart import CHART, NAMESPACE, Chart
from hack.testbed.cluster import teardown
from hack.testbed.cluster.api import Api
from hack.testbed.cluster.catalog import KUBERNETES_VERSIONS
from hack.testbed.cluster.errors import say_on_stderr
from hack.testbed.cluster.lab import Lab
from hack.testbed.cluster.spec import NodeSpec, Wishes
from hack.testbed.cluster.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

REAL_NODE: Final = "real"
OWN: Final = "own-node"
OTHER: Final = "other-node"
COMPONENTS: Final = ("node", "detector", "agent", "uninstall")
_BETAS: Final = "resource.k8s.io/v1beta1=true,resource.k8s.io/v1beta2=true"
_RUNS: Final = frozenset({"DaemonSet", "Job", "Pod"})
SLICES: Final = "/apis/resource.k8s.io/v1/resourceslices"
GPU_NODES: Final = "/apis/gpudra.dev/v1alpha1/gpunodes"
Object = dict[str, Any]


def a_slice(version: str = "v1", name: str = "try", **where: Any) -> Object:
    """A slice of nobody's driver without devices."""
    pool = {"name": where.get("nodeName", OWN), "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "gpu.nvidia.com", "pool": pool, **where}
    return {"apiVersion": f"resource.k8s.io/{version}", "kind": "ResourceSlice", "metadata": {"name": name}, "spec": spec}


def a_gpu_node(name: str) -> Object:
    """What the agent of a node creates."""
    return {"apiVersion": "gpudra.dev/v1alpha1", "kind": "GpuNode", "metadata": {"name": name}}


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What the API server answered."""

    code: int
    body: Any

    @property
    def message(self) -> str:
        """The server's words where it refused."""
        return str(self.body.get("message", "")) if isinstance(self.body, dict) else str(self.body)


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """Somebody with a token."""

    server: str
    trust: ssl.SSLContext
    token: str

    def ask(self, method: str, path: str, body: Object | None = None) -> Answer:
        """One request; a refusal is an answer too."""
        request = urllib.request.Request(self.server + path, method=method, data=json.dumps(body).encode() if body else None)
        request.add_header("Authorization", f"Bearer {self.token}")
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        request.add_header("Content-Type", kind)
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=self.trust))
        try:
            with opener.open(request, timeout=10) as response:
                if "watch=true" in path:
                    return Answer(code=response.status, body={})
                return Answer(code=response.status, body=json.loads(response.read()))
        except urllib.error.HTTPError as error:
            return Answer(code=error.code, body=json.loads(error.read()))

    def may(self, method: str, path: str, body: Object | None = None) -> Any:
        """Ask, and hold the server to a yes; the object it answered with."""
        answer = self.ask(method, path, body)
        assert answer.code in (200, 201), f"{method} {path}: {answer.code} {answer.message}"
        return answer.body

    def may_not(self, method: str, path: str, body: Object | None = None, *, why: str) -> None:
        """Ask, and hold the server to a refusal in these words: RBAC's "cannot VERB resource", or those of a policy.

        A controller's write in between must not be what refuses: then it is asked again without the object's version.
        """
        answer = self.ask(method, path, body)
        if answer.code == 409 and body is not None:
            metadata = {key: value for key, value in body["metadata"].items() if key != "resourceVersion"}
            answer = self.ask(method, path, body | {"metadata": metadata})
        assert answer.code in (403, 422), f"{method} {path}: {answer.code} {answer.message}"
        assert why in answer.message, answer.message


@dataclass(frozen=True, slots=True, kw_only=True)
class Rights:
    """A lab with one release's accounts, rights and policies in it."""

    lab: Lab
    full: str = "gpu-dra"
    """What the release's objects are named."""

    @property
    def admin(self) -> User:
        api = Api.from_kubeconfig(self.lab.kubeconfig)
        return User(server=api.server, trust=api.trust, token=api.token)

    def user(self, component: str, *, node: str) -> User:
        """The account as a pod of it on `node` has it; `node=""`: by a token that belongs to no pod."""
        account = f"{self.full}-{component}"
        bound = [f"--bound-object-name={self._pod(account, node)}", "--bound-object-kind=Pod"] if node else []
        token = self.lab.kubectl("-n", NAMESPACE, "create", "token", account, *bound).strip()
        admin = self.admin
        return User(server=admin.server, trust=admin.trust, token=token)

    def apply(self, *objects: Object) -> None:
        self.lab.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(objects))

    def await_policies(self) -> None:
        """Return once the API server goes by the policies, which it does a moment after it was given them."""
        plugin, detector, agent = (self.user(component, node=OWN) for component in ("node", "detector", "agent"))
        other = f"/api/v1/nodes/{OTHER}"
        for what, ask in (
            ("slices", lambda: plugin.ask("POST", f"{SLICES}?dryRun=All", a_slice(allNodes=True))),
            ("node status", lambda: plugin.ask("PUT", f"{other}/status?dryRun=All", self.node(OTHER))),
            ("detector", lambda: detector.ask("PUT", f"{other}?dryRun=All", self.node(OTHER))),
            ("GpuNodes", lambda: agent.ask("POST", f"{GPU_NODES}?dryRun=All", a_gpu_node(OTHER))),
        ):
            wait_for(f"policy {what}", lambda ask=ask: "own node only" in ask().message, needs=[], deadline_s=30)

    def node(self, name: str) -> Object:
        """A Node as it is now."""
        found: Object = self.admin.may("GET", f"/api/v1/nodes/{name}")
        return found

    def _pod(self, account: str, node: str) -> str:
        name = f"{account}-{node}"
        container = {"name": "a", "image": "gpudra.dev/none:1", "imagePullPolicy": "Never"}
        spec = {"serviceAccountName": account, "nodeName": node, "containers": [container], "tolerations": [{"operator": "Exists"}]}
        self.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec})
        return name


def rendered(lab: Lab, release: str, *flags: str) -> list[Object]:
    """The chart's objects but those that run something; its hooks as plain objects."""
    version = KUBERNETES_VERSIONS[lab.state.spec.kubernetes]
    api = ("--api-versions", "resource.k8s.io/v1")
    command = ("template", release, str(CHART), "--kube-version", version, *api, "--set", "agent.enabled=true", *flags)
    text = Chart(lab=lab).helm(*command)
    return [each for each in yaml.safe_load_all(text) if each and each["kind"] not in _RUNS]


@contextlib.contextmanager
def rights_lab(name: str, kubernetes: str, *, gates: str | None = None) -> Iterator[Rights]:
    """A lab of the name with the release gpu-dra; the betas of DRA are served."""
    teardown.down(name, say=say_on_stderr)  # what a killed run left
    try:
        nodes = (NodeSpec(name=REAL_NODE),)
        lab = Lab.up(Wishes(name=name, kubernetes=kubernetes, nodes=nodes, feature_gates=gates, runtime_config=_BETAS))
        rights = Rights(lab=lab)
        rights.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
        rights.apply(*({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}} for node in (OWN, OTHER)))
        rights.apply(*rendered(lab, "gpu-dra"))
        rights.await_policies()
        yield rights
    finally:
        teardown.down(name, say=say_on_stderr)
