"""Machines for the tests of the CDI room."""

from pathlib import Path

import pytest

from tests.unit.cdi.host_tree import HostTree


@pytest.fixture
def tree(tmp_path: Path) -> HostTree:
    """An Ubuntu machine with the driver installed, without NVIDIA's container toolkit."""
    return HostTree(tmp_path).install_driver()


@pytest.fixture
def hooked(tree: HostTree) -> HostTree:
    """The same with the toolkit's hook program."""
    return tree.install_hook()
