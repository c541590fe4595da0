"""The network of a lab: a bridge on the machine, a link into each node's network namespace, routes to the pods.

The namespaces have no name: they live as long as a process of the node does, and take the link with them. Nodes reach each other and
the machine, nothing else; images are loaded, never pulled. Firewall rules are added only where the machine has a firewall, carry the
lab's name as a comment, and are found again by it.
"""

from __future__ import annotations

import json
import shlex
from ipaddress import IPv4Network
from pathlib import Path

from hack.testbed.cluster.addresses import Addresses
from hack.testbed.cluster.commands import attempt, run
from hack.testbed.cluster.errors import LabError
from hack.testbed.cluster.processes import wait_until


def machine_routes() -> list[IPv4Network]:
    """Every IPv4 network that this machine routes, the default route apart."""
    routes = json.loads(run("ip", "-json", "-4", "route", "show", "table", "all"))
    return [IPv4Network(route["dst"], strict=False) for route in routes if "." in route["dst"]]


def ensure_bridge(addresses: Addresses) -> None:
    """Make the lab's bridge if it is not there. Raises LabError."""
    if not link_exists(addresses.bridge):
        batch = [
            f"link add {addresses.bridge} type bridge",
            f"addr add {addresses.gateway}/{addresses.node_network.prefixlen} dev {addresses.bridge}",
            f"link set {addresses.bridge} up",
        ]
        run("ip", "-batch", "-", stdin="\n".join(batch) + "\n")
    _open_firewall(addresses)


def connect(addresses: Addresses, ordinal: int, *, init: int, nodes: int) -> None:
    """Link a node's namespace to the bridge and give it its addresses and routes. Raises LabError."""
    veth, node = addresses.veth(ordinal), addresses.node(ordinal)
    outside = [
        f"link add {veth} type veth peer name eth0 netns {init}",
        f"link set {veth} master {addresses.bridge} up",
        f"route replace {addresses.pods_of(ordinal)} via {node}",
    ]
    run("ip", "-batch", "-", stdin="\n".join(outside[:2]) + "\n")
    others = [other for other in range(1, nodes + 1) if other != ordinal]
    inside = [
        "link set lo up",
        f"addr add {node}/{addresses.node_network.prefixlen} dev eth0",
        "link set eth0 up",
        f"route add default via {addresses.gateway}",
        # Straight to the other node: the machine need not forward.
        *(f"route add {addresses.pods_of(other)} via {addresses.node(other)}" for other in others),
    ]
    run("nsenter", "--target", str(init), "--net", "ip", "-batch", "-", stdin="\n".join(inside) + "\n")
    run("ip", "-batch", "-", stdin=outside[2] + "\n")


def disconnect(addresses: Addresses, ordinal: int) -> None:
    """Remove a node's link; nothing happens when the kernel did so already."""
    _remove_link(addresses.veth(ordinal))


def remove(lab: str) -> None:
    """Remove every link, route and firewall rule of a lab, known by its name alone. Raises LabError."""
    for name in leftovers(lab):
        _remove_link(name)
    _close_firewall(lab)


def leftovers(lab: str) -> list[str]:
    """Links of the lab that exist."""
    names = [path.name for path in Path("/sys/class/net").iterdir()]
    bridge = Addresses(lab=lab, index=0).bridge
    return [name for name in names if name == bridge or name.startswith(f"{bridge}-")]


def link_exists(name: str) -> bool:
    return Path("/sys/class/net", name).exists()


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
