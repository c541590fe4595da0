"""Names and addresses of a lab, all of them a function of its name and its index.

    10.77.<index>.1           bridge on the machine: API server
    10.77.<index>.<10+node>   node
    10.88.<16*index+node>.0   pods of a node (/24)
    127.77.<index>.1          etcd, scheduler, controller manager: never seen by nodes
    10.96.0.0/24              Services; the same in every lab, since only the nodes' own networks know it

Pure. Which index is free is decided from the machine's routes and from the indices that other labs hold.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network

from hack.testbed.cluster.errors import LabError

MAX_LABS = 16
SERVICE_NETWORK = IPv4Network("10.96.0.0/24")
API_SERVICE_ADDRESS = SERVICE_NETWORK[1]
_NODES = IPv4Network("10.77.0.0/16")
_PODS = IPv4Network("10.88.0.0/16")
_LOOPBACK = IPv4Network("127.77.0.0/16")
_WIDE_PREFIX = 16
"""A route wider than this (a VPN's 10.0.0.0/8) does not forbid an index: the lab's own routes are more specific."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Addresses:
    """Every name and address of one lab."""

    lab: str
    index: int

    @property
    def bridge(self) -> str:
        """Name of the bridge on the machine."""
        return f"gd-{self.lab}"

    def veth(self, ordinal: int) -> str:
        """Name of the machine's end of a node's link."""
        return f"gd-{self.lab}-{ordinal}"

    @property
    def node_network(self) -> IPv4Network:
        return list(_NODES.subnets(new_prefix=24))[self.index]

    @property
    def gateway(self) -> IPv4Address:
        """The bridge's address, where the API server listens."""
        return self.node_network[1]

    @property
    def loopback(self) -> IPv4Address:
        """An address of the machine's loopback network that is this lab's alone, so that default ports can be used."""
        return list(_LOOPBACK.subnets(new_prefix=24))[self.index][1]

    @property
    def pod_network(self) -> IPv4Network:
        return list(_PODS.subnets(new_prefix=20))[self.index]

    def node(self, ordinal: int) -> IPv4Address:
        return self.node_network[10 + ordinal]

    def pods_of(self, ordinal: int) -> IPv4Network:
        return list(self.pod_network.subnets(new_prefix=24))[ordinal]


def choose_index(lab: str, *, held: Iterable[int], routes: Iterable[IPv4Network]) -> int:
    """The lowest index that no other lab holds and whose networks the machine does not route elsewhere. Raises LabError."""
    taken = set(held)
    specific = [route for route in routes if route.prefixlen >= _WIDE_PREFIX]
    for index in range(MAX_LABS):
        wanted = Addresses(lab=lab, index=index)
        ours = (wanted.node_network, wanted.pod_network)
        if index not in taken and not any(route.overlaps(network) for route in specific for network in ours):
            return index
    raise LabError(f"no free network for lab {lab}: {_NODES} and {_PODS} are in use; take a lab down (hack/cluster down --name …)")
