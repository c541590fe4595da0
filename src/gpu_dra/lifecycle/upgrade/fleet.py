"""Which nodes go next. Pure.

A node under way always goes on, whatever became of the others; what is decided here is who may start. One sick node takes a place of
those that may be out, and no more: it stops nobody else.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gpu_dra.lifecycle.upgrade import node
from gpu_dra.lifecycle.upgrade.view import UNDER_WAY, State

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpu_dra.lifecycle.upgrade.policy import Policy
    from gpu_dra.lifecycle.upgrade.view import Step, View


def decide(views: Sequence[View], policy: Policy, *, wanted: str, now: float) -> dict[str, Step]:
    """One step for every node. `wanted`: the revision of the driver that all are to run."""
    steps: dict[str, Step] = {}
    waiting: list[View] = []
    for view in sorted(views, key=lambda view: view.name):
        if view.record.state in UNDER_WAY:
            steps[view.name] = node.advance(view, policy, now=now)
            continue
        steps[view.name] = step = node.rest(view, wanted, now=now)
        if step.record.state is State.REQUIRED:
            waiting.append(view)
    _start_some(views, waiting, steps, policy, wanted=wanted, now=now)
    return steps


def _start_some(
    views: Sequence[View], waiting: Sequence[View], steps: dict[str, Step], policy: Policy, *, wanted: str, now: float
) -> None:
    """Start what may, and say of each other node what it waits for."""
    closed = policy.closed(now) or _stopped(steps, policy, wanted)
    under_way = sum(step.record.state in UNDER_WAY for step in steps.values())
    out = {view.name for view in views if view.unschedulable or not view.ready or steps[view.name].record.state in UNDER_WAY}
    most_out = policy.most_unavailable(len(views))
    for view in sorted(waiting, key=lambda view: (not view.canary, view.name)):
        if view.skip:
            why = "is left out: the node's label nvidia.com/gpu-driver-upgrade.skip is true"
        elif view.foreign_cordon:
            why = "waits until whoever cordoned the node uncordons it"
        elif now < view.record.not_before:
            why = f"is tried again in {(view.record.not_before - now) / 60:.0f} min, since {view.record.gave_back}"
        elif closed:
            why = f"waits: {closed}"
        elif not view.canary and (canaries := _canaries(views, steps, wanted)):
            why = f"waits for the canary {', '.join(canaries)}"
        elif policy.max_parallel and under_way >= policy.max_parallel:
            why = f"waits: {under_way} of at most {policy.max_parallel} are under way"
        elif len(out | {view.name}) > most_out and view.name not in out:
            why = f"waits: {len(out)} of at most {most_out} nodes are out ({', '.join(sorted(out))})"
        else:
            steps[view.name] = node.start(view, wanted, now=now)
            under_way += 1
            out.add(view.name)
            continue
        steps[view.name] = replace(steps[view.name], record=replace(steps[view.name].record, message=why))


def _stopped(steps: Mapping[str, Step], policy: Policy, wanted: str) -> str:
    """Failures after which no further node is started; a node that is on its way back counts already."""
    failed = sorted(name for name, step in steps.items() if step.record.failure and step.record.failed_target == wanted)
    if not policy.pause_after_failures or len(failed) < policy.pause_after_failures:
        return ""
    return f"stopped after {len(failed)} failures: {', '.join(f'{name}: {steps[name].record.failure}' for name in failed[:1])}"


def _canaries(views: Sequence[View], steps: Mapping[str, Step], wanted: str) -> list[str]:
    """Canaries that do not run `wanted` yet, those left out apart."""
    return sorted(
        view.name
        for view in views
        if view.canary and not view.skip and not (steps[view.name].record.state is State.DONE and view.assigned == wanted)
    )
