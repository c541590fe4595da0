"""Labs with the chart, for the tests of this folder alone; they run in the order of the files, and the last one uninstalls."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hack.demo.main import NODES
from tests.cluster.chart.installed import PLAIN, Installed, installed

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="package")
def chart37() -> Iterator[Installed]:
    yield from installed("chart37", "1.37", nodes=(*NODES, PLAIN))


@pytest.fixture(scope="package")
def chart34() -> Iterator[Installed]:
    """1.34 has extended resources for device classes behind a gate."""
    yield from installed("chart34", "1.34", nodes=NODES, gates="DRAExtendedResource=true")


@pytest.fixture
def chart(chart37: Installed) -> Iterator[Installed]:
    """The chart on the newest version, with an empty default namespace before and after."""
    chart37.clean()
    yield chart37
    chart37.clean()


@pytest.fixture
def old_chart(chart34: Installed) -> Iterator[Installed]:
    """The same on the oldest version."""
    chart34.clean()
    yield chart34
    chart34.clean()
