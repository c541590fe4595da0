"""Fixtures of this room's tests."""

from __future__ import annotations

import pytest

from gpu_dra.claims.manager import ClaimSettings
from tests.unit.claims import samples
from tests.unit.claims.lab import Node


@pytest.fixture
def node(tmp_path):
    node = Node(tmp_path, ClaimSettings(driver=samples.DRIVER, pool=samples.POOL))
    yield node
    for room in node.rooms:
        room.manager.close()
