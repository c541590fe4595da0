"""The chart, rendered by the real Helm; each combination once."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from hack.testbed.cluster.bootstrap import toolbox
from hack.testbed.cluster.catalog import DEFAULT_KUBERNETES, KUBERNETES_VERSIONS
from hack.testbed.cluster.errors import say_on_stderr

CHART = Path(__file__).resolve().parents[2] / "helm/gpu-dra"
NEWEST = KUBERNETES_VERSIONS[DEFAULT_KUBERNETES]


@dataclass
class Helm:
    """`helm template`."""

    program: str
    rendered: dict[tuple[str, ...], list[dict[str, Any]]] = field(default_factory=dict)

    def run(self, *flags: str, namespace="gpu-dra", release="gpu-dra", kubernetes=NEWEST, apis=("resource.k8s.io/v1",)):
        known = [word for api in apis for word in ("--api-versions", api)]
        command = [self.program, "template", release, str(CHART), "--namespace", namespace, "--kube-version", kubernetes]
        return subprocess.run([*command, *known, *flags], capture_output=True, text=True, check=False)

    def objects(self, *flags, **settings):
        """Everything that is rendered, hooks included."""
        key = (*flags, repr(sorted(settings.items())))
        if key not in self.rendered:
            done = self.run(*flags, **settings)
            assert done.returncode == 0, done.stderr
            self.rendered[key] = [each for each in yaml.load_all(done.stdout, yaml.CSafeLoader) if each]
        return self.rendered[key]

    def refusal(self, *flags, **settings):
        """What is said instead."""
        done = self.run(*flags, **settings)
        assert done.returncode != 0
        return done.stderr


@pytest.fixture(scope="session")
def helm():
    return Helm(program=toolbox(DEFAULT_KUBERNETES, say=say_on_stderr)["helm"])
