"""A plugin in its pod that lacks one of its rights names it where a person looks, and heals when it is given.

What each account may and may not do is asked in `test_account_rights.py` and `test_account_policies.py`.
"""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.cluster.chart.installed import claim, pod, warnings

if TYPE_CHECKING:
    from collections.abc import Iterator

ROLE = "gpu-dra-node"


@pytest.fixture
def without(chart):
    """A context in which the plugins' role lacks its rule for a resource."""
    before = json.loads(chart.lab.kubectl("get", "clusterrole", ROLE, "-o", "json"))["rules"]

    def set_rules(rules: list[Any]) -> None:
        chart.lab.kubectl("patch", "clusterrole", ROLE, "--type=merge", "-p", json.dumps({"rules": rules}))

    @contextlib.contextmanager
    def taken(resource: str) -> Iterator[None]:
        set_rules([rule for rule in before if resource not in rule["resources"]])
        try:
            yield
        finally:
            set_rules(before)

    return taken


@pytest.mark.parametrize("resource", ["nodes", "resourceslices"])
def test_a_plugin_that_lacks_a_right_says_which_and_heals_when_it_has_it(chart, without, resource):
    with without(resource):
        names = [each["metadata"]["name"] for each in chart.chart.pods("node", node="node-a")]
        chart.lab.kubectl("-n", "gpu-dra", "delete", "pod", *names)
        chart.wait("a line that names it", lambda: f'resource \\"{resource}\\"' in chart.chart.logs("node", tail=60))
        assert "Traceback" not in chart.chart.logs("node", tail=200)
    chart.wait("the plugin ready", lambda: "node-a" in chart.plugins(), within=120)
    chart.wait("its slices", lambda: "node-a" in chart.offered())


def test_a_plugin_that_may_not_read_claims_says_so_where_the_pod_is_described(chart, without):
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}
    with without("resourceclaims"):
        chart.apply(claim("unread", request), pod("waits", {"name": "gpu", "resourceClaimName": "unread"}, node="node-a"))
        chart.wait("the event", lambda: 'cannot get resource "resourceclaims"' in warnings(chart, "waits"))
