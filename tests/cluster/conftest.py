"""One real Kubernetes per version and session, with the driver running on both nodes; taken down at the end whatever happens."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hack.demo.main import NODES, partition
from hack.testbed import driver
from hack.testbed.cluster import teardown
from hack.testbed.cluster.errors import say_on_stderr
from hack.testbed.cluster.lab import Lab
from hack.testbed.cluster.spec import NodeSpec, Wishes
from hack.testbed.driver import Driver
from tests.cluster.cluster import Cluster

if TYPE_CHECKING:
    from collections.abc import Iterator

HOOK_NODE = NodeSpec(name="node-c", profile="l4x4", hook=True)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "tests/cluster" in str(item.path):
            item.add_marker(pytest.mark.cluster)


def _cluster(name: str, kubernetes: str, nodes: tuple[NodeSpec, ...]) -> Iterator[Cluster]:
    teardown.down(name, say=say_on_stderr)  # what a killed run left
    try:
        lab = Lab.up(Wishes(name=name, kubernetes=kubernetes, nodes=nodes))
        partition(lab)
        driver.install(lab)
        cluster = Cluster(lab=lab, drivers={node.name: Driver(lab=lab, node=node.name) for node in nodes})
        cluster.recover()
        yield cluster
    finally:
        teardown.down(name, say=say_on_stderr)


@pytest.fixture(scope="session")
def newest() -> Iterator[Cluster]:
    """Kubernetes 1.37 with an H100 node, a partitioned A100 node, and a node that has `nvidia-cdi-hook`."""
    yield from _cluster("ct37", "1.37", (*NODES, HOOK_NODE))


@pytest.fixture(scope="session")
def oldest() -> Iterator[Cluster]:
    """Kubernetes 1.34, the oldest that is supported."""
    yield from _cluster("ct34", "1.34", NODES)


@pytest.fixture
def cluster(newest: Cluster) -> Iterator[Cluster]:
    """The newest cluster with an empty default namespace before and after, and every driver running."""
    newest.clean()
    yield newest
    newest.recover()
    newest.clean()


@pytest.fixture
def old_cluster(oldest: Cluster) -> Iterator[Cluster]:
    """The same on the oldest version."""
    oldest.clean()
    yield oldest
    oldest.recover()
    oldest.clean()
