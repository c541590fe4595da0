"""`kubectl describe node` says whether the GPUs are offered, and why not."""

import asyncio

import pytest

from gpu_dra.core.clock import FakeClock
from gpu_dra.kube.api import EVENTS, NODES
from gpu_dra.kube.errors import WriteConflict
from gpu_dra.kube.events import EventRecorder
from gpu_dra.kube.fake import FakeKubeApi
from gpu_dra.kube.rest import Verb
from gpu_dra.node.node_report import NodeReport, condition, with_condition
from gpu_dra.slices.marks import NODE_CONDITION

TROUBLE = ["the kernel module nvidia is not loaded; load it"]


class Node:
    """A Node object, the report about it, and a clock."""

    def __init__(self):
        self.clock = FakeClock()
        self.api = FakeKubeApi(clock=self.clock)
        self.api.store.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-a"}})
        self.troubles = []
        self.events = EventRecorder(self.api, clock=self.clock, component="gpu-dra-node", instance="node-a")
        self.publishes = True
        self.report = self.reporter()

    def reporter(self):
        return NodeReport(
            self.api,
            node_name="node-a",
            troubles=lambda: list(self.troubles),
            speaks=lambda: self.publishes,
            events=self.events,
            clock=self.clock,
        )

    async def pass_time(self, seconds):
        for _ in range(seconds):
            await self.clock.advance(1)
            await asyncio.sleep(0)

    @property
    def condition(self):
        conditions = self.api.store.get(NODES, "node-a").get("status", {}).get("conditions", [])
        return next((c for c in conditions if c["type"] == NODE_CONDITION), None)

    @property
    def told(self):
        return [(event["type"], event["message"]) for event in self.api.store.list(EVENTS)]


@pytest.fixture
async def node():
    node = Node()
    tasks = [asyncio.create_task(node.report.run()), asyncio.create_task(node.events.run())]
    yield node
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_plugin_that_ends_leaves_no_claim_that_nobody_watches(node):
    await node.pass_time(15)
    await node.report.end()
    assert (node.condition["status"], node.condition["reason"]) == ("Unknown", "PluginEnded")
    node.troubles = TROUBLE
    await node.pass_time(15)
    assert node.condition["reason"] == "PluginEnded"
    assert node.told == []


async def test_a_plugin_that_stands_by_ends_without_a_word(node):
    await node.pass_time(15)
    node.publishes = False
    await node.report.end()
    assert node.condition["status"] == "True"


async def test_a_stop_does_not_wait_for_an_api_server_that_fails(node, caplog):
    node.api.fail(WriteConflict("changed"), verb=Verb.UPDATE, times=100)
    await node.report.end()
    assert "stays as it is" in caplog.text


async def test_a_node_that_offers_its_gpus_says_so_without_an_event(node):
    await node.pass_time(15)
    assert node.condition["status"] == "True"
    assert node.told == []


async def test_what_keeps_gpus_from_pods_is_a_condition_and_an_event(node):
    node.troubles = TROUBLE
    await node.pass_time(15)
    assert (node.condition["status"], node.condition["message"]) == ("False", TROUBLE[0])
    assert node.told == [("Warning", TROUBLE[0])]


async def test_the_way_back_is_told_too(node):
    node.troubles = TROUBLE
    await node.pass_time(15)
    node.troubles = []
    await node.pass_time(15)
    assert node.condition["status"] == "True"
    assert {kind for kind, _ in node.told} == {"Warning", "Normal"}


async def test_a_trouble_that_is_over_before_it_settles_is_not_told(node):
    await node.pass_time(5)
    node.troubles = TROUBLE
    await node.pass_time(6)
    node.troubles = []
    await node.pass_time(15)
    assert node.told == []


async def test_in_an_update_the_condition_is_the_publishers_word_and_the_others_is_an_event(node):
    await node.pass_time(15)
    node.publishes, node.troubles = False, TROUBLE
    await node.pass_time(15)
    assert node.condition["status"] == "True"
    ((kind, message),) = node.told
    assert kind == "Warning"
    assert "the one before goes on" in message
    assert TROUBLE[0] in message
    node.publishes = True
    await node.pass_time(15)
    assert node.condition["status"] == "False"


async def test_nothing_is_written_while_nothing_changes(node):
    await node.pass_time(15)
    writes = len(node.api.writes)
    await node.pass_time(600)
    assert len(node.api.writes) == writes


async def test_a_restart_that_finds_the_same_says_nothing_again(node):
    node.troubles = TROUBLE
    await node.pass_time(15)
    writes = len(node.api.writes)
    await node.reporter()._tell(TROUBLE, quiet=False)
    assert len(node.api.writes) == writes


async def test_a_conflict_with_the_kubelet_is_tried_again(node):
    node.api.fail(WriteConflict("the object changed"), verb=Verb.UPDATE, times=2)
    node.troubles = TROUBLE
    await node.pass_time(90)
    assert node.condition["status"] == "False"


def test_other_conditions_stay_and_the_time_of_transition_changes_with_the_status_only():
    ready = {"type": "Ready", "status": "True"}
    first = with_condition({"status": {"conditions": [ready]}}, condition(["a"], now=0.0))
    second = with_condition(first, condition(["b"], now=100.0))
    assert second["status"]["conditions"][0] == ready
    assert second["status"]["conditions"][1]["lastTransitionTime"] == "1970-01-01T00:00:00Z"
    third = with_condition(second, condition([], now=200.0))
    assert third["status"]["conditions"][1]["lastTransitionTime"] == "1970-01-01T00:03:20Z"
