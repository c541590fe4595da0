"""A cluster in a few hundred lines: nodes, driver containers, GPU pods, a scheduler, a person who interferes, and a controller that dies.

What the planner decides is carried out here as the executor would: the record first, then the actions, and perhaps only some of them.
Promises are checked the moment they could be broken.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

from gpu_dra.lifecycle.upgrade.fleet import decide
from gpu_dra.lifecycle.upgrade.policy import Policy
from gpu_dra.lifecycle.upgrade.view import (
    UNDER_WAY,
    WITHDRAWN,
    Assign,
    Cordon,
    DriverPod,
    Evict,
    GpuPod,
    Record,
    State,
    Uncordon,
    View,
)

TICK = 10.0
LONGEST_WAIT = 25
"""Looks: a little more than `again_seconds`."""
LEGAL = {
    State.UNKNOWN: {State.DONE, State.REQUIRED},
    State.DONE: {State.REQUIRED, State.UNKNOWN},
    State.REQUIRED: {State.CORDON, State.DONE, State.UNKNOWN},
    State.CORDON: {State.JOBS, State.UNCORDON},
    State.JOBS: {State.PODS},
    State.PODS: {State.RESTART, State.UNCORDON},
    State.RESTART: {State.VALIDATION, State.PODS, State.FAILED},
    State.VALIDATION: {State.UNCORDON, State.RESTART, State.PODS, State.FAILED},
    State.UNCORDON: {State.DONE, State.FAILED, State.REQUIRED},
    State.FAILED: {State.REQUIRED, State.UNCORDON, State.UNKNOWN, State.DONE},
}
"""REQUIRED is passed through on the way from any resting state to CORDON in one look."""


@dataclass
class Node:
    name: str
    record: Record = field(default_factory=Record)
    assigned: str = ""
    driver: DriverPod | None = None
    driver_up_at: float = 0.0
    ending_until: float = 0.0
    pods: dict[str, float] = field(default_factory=dict)
    """Until when a PodDisruptionBudget protects each."""
    refused: set[str] = field(default_factory=set)
    offered: bool = False
    unschedulable: bool = False
    mark: bool = False
    foreign: bool = False
    ready: bool = True
    canary: bool = False
    bad: frozenset[str] = frozenset()
    """Revisions whose driver never comes up here."""
    dud: frozenset[str] = frozenset()
    """Revisions whose driver comes up and does not work."""

    @property
    def works(self) -> bool:
        return self.driver is not None and self.driver.ready and self.driver.revision not in self.dud


class World:
    """`seed` decides everything."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.now = 1_000_000.0
        self.wanted = "v1"
        self.policy = Policy(
            max_parallel=self.chance.choice((0, 1, 1, 2, 3)),
            max_unavailable=self.chance.choice((1, 2, "25%", "50%")),
            pause_after_failures=self.chance.choice((0, 1, 2)),
            wait_for_jobs_seconds=self.chance.choice((0.0, 60.0)),
            roll_back=self.chance.random() < 0.7,
            evict_seconds=100.0,
            again_seconds=200.0,
            driver_seconds=200.0,
            validation_seconds=100.0,
        )
        self.nodes = [Node(name=f"node-{number}", assigned="v1") for number in range(self.chance.randint(1, 7))]
        for node in self.nodes:
            node.driver = DriverPod(revision="v1", ready=True)
            if self.chance.random() < 0.15:
                node.bad = frozenset({"v2"})
            elif self.chance.random() < 0.15:
                node.dud = frozenset({"v2"})
        if self.chance.random() < 0.4:
            self.chance.choice(self.nodes).canary = True
        self.number = 0
        self.calm = False
        """Nobody interferes any more, and budgets yield."""

    def tick(self) -> None:
        self.now += TICK
        for node in self.nodes:
            self._drivers(node)
            self._agent(node)
            if not self.calm:
                self._person(node)
            self._scheduler(node)
        if not self.calm and self.chance.random() < 0.15:
            return  # the API server is away, or no controller runs
        self.look()

    def look(self) -> None:
        views = [self.view(node) for node in self.nodes]
        steps = decide(views, self.policy, wanted=self.wanted, now=self.now)
        self._check_budget(views, steps)
        for node in self.nodes:
            if not self.calm and self.chance.random() < 0.05:
                return  # killed between two nodes
            step = steps[node.name]
            self._check_transition(node, step.record)
            node.record = step.record
            for action in step.actions:
                if not self.calm and self.chance.random() < 0.1:
                    return  # killed between record and action
                self._carry_out(node, action)

    def view(self, node: Node) -> View:
        pods = tuple(
            GpuPod(name=name, finishes=name.startswith("job"), refused="the budget" if name in node.refused else "")
            for name in sorted(node.pods)
        )
        return View(
            name=node.name,
            record=node.record,
            assigned=node.assigned,
            driver=node.driver,
            validated=node.works,
            lacks="" if node.works else "no GPU answers",
            pods=pods,
            offered=node.offered,
            unschedulable=node.unschedulable,
            cordoned_by_us=node.mark,
            ready=node.ready,
            canary=node.canary,
        )

    def _check_budget(self, views, steps) -> None:
        """Who starts now must leave parallelism and availability within their bounds."""
        started = [view for view in views if view.record.state not in UNDER_WAY and steps[view.name].record.state is State.CORDON]
        if not started:
            return
        under_way = [view for view in views if steps[view.name].record.state in UNDER_WAY]
        if self.policy.max_parallel:
            assert len(under_way) <= max(self.policy.max_parallel, 0), "more under way than allowed"
        out = {view.name for view in views if view.unschedulable or not view.ready or view in under_way}
        already = {view.name for view in started if not view.ready}
        assert len(out) <= self.policy.most_unavailable(len(views)) or {view.name for view in started} <= already
        for view in started:
            assert not view.foreign_cordon, "a node was started that somebody else had cordoned"
        failed = [step for step in steps.values() if step.record.failure and step.record.failed_target == self.wanted]
        if self.policy.pause_after_failures:
            assert len(failed) < self.policy.pause_after_failures, "a node was started after too many had failed"

    def _check_transition(self, node: Node, after: Record) -> None:
        before = node.record.state
        resting = before not in UNDER_WAY and after.state is State.CORDON
        assert after.state is before or after.state in LEGAL[before] or resting, f"{before!r} -> {after.state!r}"
        if after.state is not before:
            assert after.since == self.now
        assert len(after.message) < 900, "a message grows"

    def _carry_out(self, node: Node, action) -> None:
        match action:
            case Cordon():
                node.unschedulable = node.mark = True
            case Uncordon():
                if node.mark:
                    assert not node.foreign, "somebody else's cordon was lifted"
                    node.unschedulable = node.mark = False
            case Evict(pods):
                for name in pods:
                    if node.pods.get(name, 0.0) > self.now:
                        node.refused.add(name)
                    else:
                        node.pods.pop(name, None)
                        node.refused.discard(name)
            case Assign(revision):
                if revision != node.assigned and node.assigned:
                    assert not node.pods, f"the driver of {node.name} was exchanged under {sorted(node.pods)}"
                node.assigned = revision

    def _drivers(self, node: Node) -> None:
        """What the DaemonSet controller and the kubelet do."""
        if node.driver is not None and node.driver.revision != node.assigned:
            assert not node.pods or not node.driver.ready, f"the driver of {node.name} ended under {sorted(node.pods)}"
            node.ending_until = node.ending_until or self.now + TICK
            if self.now >= node.ending_until:
                node.driver, node.ending_until = None, 0.0
        elif node.driver is None and node.assigned and node.ready:
            node.driver = DriverPod(revision=node.assigned)
            node.driver_up_at = self.now + 3 * TICK
        elif node.driver is not None and not node.driver.ready and self.now >= node.driver_up_at:
            if node.driver.revision in node.bad:
                node.driver = replace(node.driver, trouble="cannot be built for this kernel")
            else:
                node.driver = replace(node.driver, ready=True)

    def _agent(self, node: Node) -> None:
        """Agent and plugin offer GPUs that work, and take them back a little late."""
        offered = node.works and node.record.state not in WITHDRAWN
        if offered and not node.offered:
            node.offered = True
        elif not offered and self.chance.random() < 0.7:
            node.offered = False

    def _scheduler(self, node: Node) -> None:
        if node.unschedulable or not node.ready or not node.offered or len(node.pods) >= 2:
            return
        if self.chance.random() < 0.3:
            self.number += 1
            name = f"{self.chance.choice(('job', 'server'))}-{self.number}"
            node.pods[name] = self.now + self.chance.choice((0.0, 0.0, 50.0, 500.0)) * (not self.calm)

    def _person(self, node: Node) -> None:
        luck = self.chance.random()
        if luck < 0.01 and not node.unschedulable:
            node.unschedulable, node.foreign = True, not node.mark  # while our mark is there, nobody could tell it from ours
        elif luck < 0.04 and node.foreign:
            node.unschedulable = node.foreign = False
        elif luck < 0.045 and node.mark:
            node.unschedulable = False
        elif luck < 0.06:
            node.ready = not node.ready
        for name in list(node.pods):
            if self.chance.random() < 0.02:
                del node.pods[name]

    def comes_to_rest(self, *, within: int) -> bool:
        """Whether no node changes its state any more, after at most this many looks."""
        still = 0
        for _ in range(within):
            before = [node.record.state for node in self.nodes]
            self.tick()
            after = [node.record.state for node in self.nodes]
            still = still + 1 if after == before and not UNDER_WAY & set(after) else 0
            if still >= LONGEST_WAIT:
                return True
        return False

    def become_calm(self) -> None:
        self.calm = True
        for node in self.nodes:
            node.ready = True
            if node.foreign:
                node.unschedulable = node.foreign = False
            node.pods = dict.fromkeys(node.pods, 0.0)
