"""The network of a lab: a bridge on the machine, a link into each node's network namespace, routes to the pods.

The namespaces have no name: they live as long as a process of the node does, and take the link with them. Nodes reach each other and
the machine, nothing else; images are loaded, never pulled. Firewall rules are added only where the machine has a firewall, carry the
lab's name as a comment, and are found again by it.
"""

from __future__ import annotations

import json
import shlex
import socket
from collections.abc import Sequence
from ipaddress import IPv4Network

from hack.testbed.cluster.addresses import Addresses
from hack.testbed.cluster.commands import attempt, run
from hack.testbed.cluster.errors import LabError
from hack.testbed.cluster.processes import wait_until


def machine_routes() -> list[IPv4Network]:
    """Every IPv4 network that this machine routes, the default route apart."""
    routes = json.loads(run("ip", "-json", "-4", "route", "show", "table", "all"))
    return [IPv4Network(route["dst"], strict=False) for route in routes if "." in route["dst"]]


def ensure_bridge(addresses: Addresses) -> None:
    """Make the lab's bridge, or what is missing of it. Raises LabError."""
    batch = [
        *([] if link_exists(addresses.bridge) else [f"link add {addresses.bridge} type bridge"]),
        f"addr replace {addresses.gateway}/{addresses.node_network.prefixlen} dev {addresses.bridge}",
        f"link set {addresses.bridge} up",
    ]
    _ip(batch)
    _open_firewall(addresses)


def ensure_connected(addresses: Addresses, ordinal: int, *, init: int, nodes: int) -> None:
    """Link a node's namespace to the bridge and give it its addresses and routes, unless that was done. Raises LabError."""
    veth, node = addresses.veth(ordinal), addresses.node(ordinal)
    if _routed(addresses, ordinal):
        return
    disconnect(addresses, ordinal)  # half a link, of a command that was killed
    others = [other for other in range(1, nodes + 1) if other != ordinal]
    inside = [
        "link set lo up",
        f"addr add {node}/{addresses.node_network.prefixlen} dev eth0",
        "link set eth0 up",
        f"route add default via {addresses.gateway}",
        # Straight to the other node: the machine need not forward.
        *(f"route add {addresses.pods_of(other)} via {addresses.node(other)}" for other in others),
    ]
    _ip([f"link add {veth} type veth peer name eth0 netns {init}", f"link set {veth} master {addresses.bridge} up"])
    _ip(inside, namespace_of=init)
    # Last, since it shows that all was done.
    _ip([f"route add {addresses.pods_of(ordinal)} via {node}"])


def _routed(addresses: Addresses, ordinal: int) -> bool:
    """Whether the machine reaches the pods of a node over a link that is there."""
    route = run("ip", "-4", "route", "show", "exact", str(addresses.pods_of(ordinal)), "dev", addresses.bridge)
    return bool(route.strip()) and link_exists(addresses.veth(ordinal))


def _ip(commands: Sequence[str], *, namespace_of: int | None = None) -> None:
    enter = () if namespace_of is None else ("nsenter", "--target", str(namespace_of), "--net")
    run(*enter, "ip", "-batch", "-", stdin="\n".join(commands) + "\n")


def disconnect(addresses: Addresses, ordinal: int) -> None:
    """Remove a node's link and the route over it; nothing happens where the kernel did so already."""
    attempt("ip", "route", "del", str(addresses.pods_of(ordinal)), "dev", addresses.bridge)
    if link_exists(addresses.veth(ordinal)):
        _remove_link(addresses.veth(ordinal))


def remove(lab: str) -> None:
    """Remove every link, route and firewall rule of a lab, known by its name alone. Raises LabError."""
    for name in leftovers(lab):
        _remove_link(name)
    _close_firewall(lab)


def leftovers(lab: str) -> list[str]:
    """Links of the lab that exist."""
    names = [name for _, name in socket.if_nameindex()]
    bridge = Addresses(lab=lab, index=0).bridge
    return [name for name in names if name == bridge or name.startswith(f"{bridge}-")]


def link_exists(name: str) -> bool:
    return any(name == existing for _, existing in socket.if_nameindex())


def _remove_link(name: str) -> None:
    # The kernel removes a dead namespace's link on its own, some time later; both may happen at once.
    removal = attempt("ip", "link", "del", name)
    if removal.returncode != 0 and not wait_until(lambda: not link_exists(name), deadline_s=10):
        raise LabError(f"link {name} cannot be removed: {removal.stderr.strip()}")


def _comment(lab: str) -> str:
    return f"gpu-dra-lab-{lab}"


def _open_firewall(addresses: Addresses) -> None:
    """Let nodes talk to the API server and, where bridged packets are filtered, to each other."""
    filters = run("iptables-save", "-t", "filter").splitlines()
    if any(_comment(addresses.lab) in line.split() for line in filters) or not has_firewall(filters):
        return
    comment = ("-m", "comment", "--comment", _comment(addresses.lab), "-j", "ACCEPT")
    run("iptables", "--wait", "-I", "INPUT", "-i", addresses.bridge, *comment)
    run("iptables", "--wait", "-I", "FORWARD", "-i", addresses.bridge, "-o", addresses.bridge, *comment)


def has_firewall(filters: list[str]) -> bool:
    """Whether the machine drops, or has rules for, what comes in or is forwarded."""
    chains = ("INPUT", "FORWARD")
    return any(line.startswith((f"-A {chain} ", f":{chain} DROP", f":{chain} REJECT")) for line in filters for chain in chains)


def _close_firewall(lab: str) -> None:
    for line in run("iptables-save", "-t", "filter").splitlines():
        rule = shlex.split(line)
        if rule[:1] == ["-A"] and _comment(lab) in rule:
            run("iptables", "--wait", "-D", *rule[1:])
