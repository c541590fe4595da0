"""The image runs where Kubernetes is strictest: read-only root, no rights, an ordinary user."""

from __future__ import annotations

from typing import Any

import pytest

from hack.container import build, inputs

STRICT = {
    "readOnlyRootFilesystem": True,
    "runAsNonRoot": True,
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}


@pytest.fixture(scope="module")
def reference(newest):
    """The image, on every node."""
    image = build.image(say=print)
    newest.lab.load_image(image.archive)
    return image.reference


def pod(name: str, image: str, *arguments: str) -> dict[str, Any]:
    """One container that runs the image's entry point once."""
    container = {"name": name, "image": image, "imagePullPolicy": "Never", "args": list(arguments), "securityContext": STRICT}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"restartPolicy": "Never", "automountServiceAccountToken": False, "containers": [container]},
    }


def output(cluster, name: str) -> str:
    """What a pod said after it ended well."""
    ended = cluster.wait(
        f"end of {name}",
        lambda: (found := cluster.get("pod", name)) and found["status"]["phase"] in {"Succeeded", "Failed"} and found,
    )
    said = cluster.lab.kubectl("logs", name)
    assert ended["status"]["phase"] == "Succeeded", said
    return said


def test_a_loaded_image_runs_on_a_read_only_root_as_an_ordinary_user(cluster, reference):
    cluster.apply(pod("version", reference, "--version"), pod("help", reference, "node", "--help"))
    assert output(cluster, "version") == f"gpu-dra {inputs.version()}\n"
    assert output(cluster, "help").startswith("usage: gpu-dra node")


def test_a_role_that_cannot_start_says_why_in_one_line(cluster, reference):
    cluster.apply(pod("nameless", reference, "node"))
    cluster.wait("end of nameless", lambda: (found := cluster.get("pod", "nameless")) and found["status"]["phase"] == "Failed")
    (line,) = cluster.lab.kubectl("logs", "nameless").splitlines()
    assert "--node-name" in line
