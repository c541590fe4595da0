"""A fresh world for each test, in a short directory, since socket paths are limited."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from tests.component.plugin import make_world


@pytest.fixture
async def world():
    world = await make_world(Path(tempfile.mkdtemp(prefix="gd", dir="/tmp")))
    yield world
    await world.close()


@pytest.fixture
async def plugin(world):
    """Registered, with its slices stored."""
    plugin = await world.registered()
    await world.until("the first slices", world.devices)
    return plugin
