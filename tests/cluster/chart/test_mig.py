"""GPUs are cut by a node label while pods run beside them; whoever holds a GPU keeps it and is named."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.cluster.chart.installed import claim, pod, warnings
from tests.cluster.cluster import RETRY

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cluster.chart.installed import Installed

NODE = "node-a"
LABEL = "nvidia.com/mig.config"
BALANCED = {"1g.10gb": 16, "2g.20gb": 8, "3g.40gb": 8}


@pytest.fixture
def cluster(chart: Installed) -> Iterator[Installed]:
    chart.chart.install(agent__enabled="true")
    yield chart
    chart.clean()
    cut(chart, "all-disabled")
    chart.wait("whole GPUs again", lambda: profiles(chart) == {} and state(chart) == "success", within=120)
    chart.lab.kubectl("label", "node", NODE, f"{LABEL}-", f"{LABEL}.state-")
    chart.chart.install()


def cut(cluster: Installed, config: str) -> None:
    cluster.lab.kubectl("label", "node", NODE, f"{LABEL}={config}", "--overwrite")


def state(cluster: Installed) -> str | None:
    return ((cluster.get("node", NODE) or {})["metadata"]["labels"]).get(f"{LABEL}.state")


def profiles(cluster: Installed) -> dict[str, int]:
    """MIG partitions that the node offers, by profile."""
    found: dict[str, int] = {}
    for slice_ in cluster.slices():
        for device in slice_["spec"].get("devices", ()) if slice_["spec"]["nodeName"] == NODE else ():
            profile = device["attributes"].get("profile", {}).get("string")
            if profile:
                found[profile] = found.get(profile, 0) + 1
    return found


def held_gpu(cluster: Installed, name: str) -> str:
    """The GPU that a claim holds, by device name."""
    claims = cluster.items("resourceclaims")
    mine = next(each for each in claims if name in [user["name"] for user in each["status"].get("reservedFor", ())])
    return str(mine["status"]["allocation"]["devices"]["results"][0]["device"])


def test_a_label_cuts_free_gpus_names_who_holds_the_others_and_gives_them_the_rest_when_he_leaves(cluster):
    holder = cluster.demo("one-gpu", node=NODE)
    cluster.running(holder)
    gpu = held_gpu(cluster, holder)
    cut(cluster, "all-balanced")
    seven = {name: count * 7 // 8 for name, count in BALANCED.items()}
    cluster.wait("partitions of seven GPUs", lambda: profiles(cluster) == seven and state(cluster) == "pending", within=120)
    cluster.wait("the holder's name", lambda: f"{gpu} (" in warnings(cluster, NODE) and holder in warnings(cluster, NODE))
    cluster.sees_exactly_its_claim(holder)

    third = {"name": "gpu", "exactly": {"deviceClassName": "mig-3g", "count": 2}}
    cluster.apply(claim("thirds", third), pod("on-partitions", {"name": "gpu", "resourceClaimName": "thirds"}, node=NODE))
    cluster.running("on-partitions")
    assert cluster.lab.kubectl("logs", "on-partitions").count("MIG 3g.40gb") == 2

    cluster.delete(holder)
    cluster.wait("the last GPU cut", lambda: profiles(cluster) == BALANCED and state(cluster) == "success", within=120)
    assert cluster.lab.kubectl("logs", "on-partitions").count("MIG 3g.40gb") == 2

    cut(cluster, "all-disabled")
    cluster.wait("all but the held GPUs whole", lambda: set(profiles(cluster)) == set(BALANCED) and state(cluster) == "pending")
    cluster.wait("the holder's name", lambda: "default/thirds of pod on-partitions" in warnings(cluster, NODE))
    assert cluster.lab.kubectl("exec", "on-partitions", "--", "nvidia-smi", "-L").count("MIG 3g.40gb") == 2


def test_agents_that_are_torn_away_leave_no_gpu_out_of_service(cluster):
    for config in ("all-1g.10gb", "all-3g.40gb", "all-balanced"):
        cut(cluster, config)
        cluster.wait("work begun", lambda: state(cluster) == "pending", within=RETRY)
        names = [each["metadata"]["name"] for each in cluster.chart.pods("agent", node=NODE)]
        cluster.lab.kubectl("-n", "gpu-dra", "delete", "pod", *names, "--force", "--grace-period=0")
    cluster.wait("the last wish", lambda: profiles(cluster) == BALANCED and state(cluster) == "success", within=420)


def test_a_wish_that_cannot_be_had_fails_with_the_names_there_are_and_changes_nothing(cluster):
    cut(cluster, "all-1g.5gb")
    cluster.wait("a failure", lambda: state(cluster) == "failed")
    cluster.wait("its reason", lambda: "no MIG configuration 'all-1g.5gb'" in warnings(cluster, NODE))
    assert profiles(cluster) == {}


def test_an_administrators_file_is_read_anew_when_it_changes(cluster):
    wish = {"devices": [0], "mig-enabled": True, "mig-devices": {"1g.20gb": 4}}
    text = json.dumps(
        {"version": "v1", "mig-configs": {"mine": [wish], "all-disabled": [{"devices": "all", "mig-enabled": False}]}}
    )
    cluster.lab.kubectl("-n", "gpu-dra", "create", "configmap", "cuts", f"--from-literal=config.yaml={text}")
    try:
        cluster.chart.install(agent__enabled="true", agent__mig__configMap="cuts")
        cut(cluster, "mine")
        cluster.wait("four partitions", lambda: profiles(cluster) == {"1g.20gb": 4} and state(cluster) == "success", within=120)
    finally:
        cluster.chart.install(agent__enabled="true", agent__mig__configMap="")
        cluster.lab.kubectl("-n", "gpu-dra", "delete", "configmap", "cuts")
