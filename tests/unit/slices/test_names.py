"""Names of slices."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_dra.slices.names import dns_subdomain, generate_name, index_of
from tests.unit.slices.samples import DRIVER, NODE

node_names = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,20}[a-z0-9])?(\.[a-z0-9]([-a-z0-9]{0,20}[a-z0-9])?){0,8}", fullmatch=True)


def test_a_slice_is_named_for_its_place_its_driver_and_its_node():
    assert generate_name(17, driver=DRIVER, node_name=NODE) == "00011-gpu.nvidia.com-node-a-"


@given(st.integers(0, 2**20), node_names)
def test_every_node_name_gives_a_legal_slice_name_that_tells_its_index(index, node_name):
    """The server keeps 58 characters and adds five; a node name may have 253 and a dot anywhere."""
    prefix = generate_name(index, driver=DRIVER, node_name=node_name)
    stored = prefix[:58] + "x7k2p"
    assert len(prefix) <= 58
    assert dns_subdomain(stored) is None
    assert index_of(stored, driver=DRIVER, node_name=node_name) == index


@given(st.integers(0, 2**20), node_names)
def test_a_name_that_the_server_had_to_cut_tells_its_index_too(index, node_name):
    """NVIDIA's driver leaves the cutting to the server."""
    stored = f"{index:05x}-{DRIVER}-{node_name}-"[:58] + "x7k2p"
    assert index_of(stored, driver=DRIVER, node_name=node_name) == index


@pytest.mark.parametrize(
    "name",
    [
        "node-a-gpu.nvidia.com-x7k2p",
        "00000-compute-domain.nvidia.com-node-a-x7k2p",
        "0000-gpu.nvidia.com-node-a-x7k2p",
        "00000",
        "by-hand",
    ],
)
def test_a_name_that_is_not_of_this_scheme_has_no_index(name):
    assert index_of(name, driver=DRIVER, node_name=NODE) is None
