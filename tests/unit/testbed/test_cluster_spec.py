"""What may be asked for, what its addresses are, and when an existing lab is another one."""

from __future__ import annotations

from ipaddress import IPv4Network

import pytest

from hack.testbed.cluster.addresses import MAX_LABS, Addresses, choose_index
from hack.testbed.cluster.errors import LabError
from hack.testbed.cluster.spec import MAX_NODES, LabSpec, NodeSpec, Wishes, settle

LINUX_INTERFACE_NAME = 15  # IFNAMSIZ less the final zero


def lab(*nodes: str, name: str = "demo") -> LabSpec:
    return settle(Wishes(name=name, nodes=tuple(NodeSpec.parse(node) for node in nodes)), None)


def test_a_node_is_named_with_the_machine_it_plays() -> None:
    assert NodeSpec.parse("gpu-1=h100x8+hook") == NodeSpec(name="gpu-1", profile="h100x8", hook=True)
    assert NodeSpec.parse("plain") == NodeSpec(name="plain")


def test_a_node_is_written_as_it_was_asked_for() -> None:
    for text in ("plain", "gpu-1=h100x8", "gpu-1=h100x8+hook"):
        assert str(NodeSpec.parse(text)) == text


@pytest.mark.parametrize("text", ["", "Upper", "1st", "a_b", "a=h100x8+hok", "-a"])
def test_a_node_that_kubernetes_would_refuse_is_refused_at_once(text: str) -> None:
    with pytest.raises(LabError, match="node"):
        NodeSpec.parse(text)


@pytest.mark.parametrize("name", ["", "ninechars", "Demo", "a-b", "7up", "../demo"])
def test_a_lab_name_that_could_not_name_an_interface_is_refused(name: str) -> None:
    with pytest.raises(LabError, match="lab name"):
        lab("a", name=name)


def test_two_nodes_of_one_name_are_refused() -> None:
    with pytest.raises(LabError, match="same name: a, a"):
        lab("a", "a")


def test_a_lab_survives_being_stored() -> None:
    spec = lab("a=h100x8", "b")
    assert LabSpec.from_json(spec.to_json()) == spec


def test_who_says_nothing_gets_the_lab_that_is_there() -> None:
    existing = lab("a=h100x8", "b")
    assert settle(Wishes(name="demo"), existing) == existing


def test_who_asks_for_another_lab_than_the_one_there_is_told_the_difference() -> None:
    """Silently keeping the old one would run tests against the wrong machine."""
    with pytest.raises(LabError, match="exists with nodes a=h100x8, not nodes a=a100x8"):
        settle(Wishes(name="demo", nodes=(NodeSpec.parse("a=a100x8"),)), lab("a=h100x8"))


def test_every_interface_name_fits_the_kernel() -> None:
    addresses = Addresses(lab="x" * 8, index=0)
    assert (
        max(len(addresses.bridge), *(len(addresses.veth(ordinal)) for ordinal in range(1, MAX_NODES + 1))) <= LINUX_INTERFACE_NAME
    )


def test_no_two_labs_share_an_address() -> None:
    labs = [Addresses(lab="any", index=index) for index in range(MAX_LABS)]
    networks = [network for one in labs for network in (one.node_network, one.pod_network)]
    assert not any(first.overlaps(second) for place, first in enumerate(networks) for second in networks[place + 1 :])
    assert len({one.loopback for one in labs}) == MAX_LABS


def test_the_pods_of_every_node_lie_in_the_labs_pod_network() -> None:
    addresses = Addresses(lab="any", index=3)
    pods = {addresses.pods_of(ordinal) for ordinal in range(1, MAX_NODES + 1)}
    assert len(pods) == MAX_NODES
    assert all(network.subnet_of(addresses.pod_network) for network in pods)


def test_a_network_that_the_machine_uses_is_left_alone() -> None:
    routes = [IPv4Network("10.77.0.0/24"), IPv4Network("10.88.16.0/24")]
    assert choose_index("any", held={2}, routes=routes) == 3


def test_a_wide_route_of_a_vpn_forbids_nothing() -> None:
    assert choose_index("any", held=(), routes=[IPv4Network("0.0.0.0/0"), IPv4Network("10.0.0.0/8")]) == 0


def test_when_every_network_is_taken_the_way_out_is_named() -> None:
    with pytest.raises(LabError, match="take a lab down"):
        choose_index("any", held=range(MAX_LABS), routes=())
