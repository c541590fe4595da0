"""A real API server for the tests that hold our fakes and rules to it: brought up once, unless GPU_DRA_TEST_KUBECONFIG names one."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from hack.testbed.cluster import teardown
from hack.testbed.cluster.errors import say_on_stderr
from hack.testbed.cluster.lab import Lab
from hack.testbed.cluster.spec import NodeSpec, Wishes

if TYPE_CHECKING:
    from collections.abc import Iterator

VARIABLE = "GPU_DRA_TEST_KUBECONFIG"
LAB = "contract"


@pytest.fixture(scope="session")
def _real_apiserver() -> Iterator[None]:
    if os.environ.get(VARIABLE):
        yield
        return
    teardown.down(LAB, say=say_on_stderr)  # what a killed run left
    try:
        os.environ[VARIABLE] = str(Lab.up(Wishes(name=LAB, kubernetes="1.37", nodes=(NodeSpec(name="node-a"),))).kubeconfig)
        yield
    finally:
        os.environ.pop(VARIABLE, None)
        teardown.down(LAB, say=say_on_stderr)


@pytest.fixture(scope="session", autouse=True)
def _for_marked_tests(request: pytest.FixtureRequest) -> None:
    """Brings it up only when a selected test is marked `real_apiserver`."""
    if any(item.get_closest_marker("real_apiserver") for item in request.session.items):
        request.getfixturevalue("_real_apiserver")
