"""The way of one node to another driver, one step a look. Pure: the node as found and the time go in, what to remember and do comes out.

    required -> cordon -> jobs -> pods -> restart -> validation -> uncordon -> done
                                   |         ^           |            ^  |
                                   |         '-roll back-'            |  '-> failed, driver of before
                                   '------ evictions refused ---------'

A state says what is to be done, never what was done: whoever comes next looks at the node and does it, once more if need be. So a
controller may be killed anywhere. Nothing of the driver is touched while a pod has a GPU of the node or could get one: a cordon is
but a wish, so that the GPUs leave the slices as well.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from gpu_dra.lifecycle.upgrade.view import Assign, Cordon, Evict, State, Step, Uncordon

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpu_dra.lifecycle.upgrade.policy import Policy
    from gpu_dra.lifecycle.upgrade.view import Record, View

NAMES_TOLD: Final = 3
_CORDONED: Final = frozenset({State.JOBS, State.PODS, State.RESTART, State.VALIDATION})
_DRIVER_BUSY: Final = frozenset({State.RESTART, State.VALIDATION})


def rest(view: View, wanted: str, *, now: float) -> Step:
    """The step of a node that is not under way: whether it is to be, or to get its first driver."""
    record = view.record
    if record.state is State.FAILED and record.failed_target == wanted and not view.retry:
        return _healed(view, wanted, now=now)
    if view.assigned == wanted:
        return _in_sync(view, wanted, now=now)
    if not view.assigned and view.driver is None and not view.pods:
        message = "the node has no driver yet and gets its first one"
        return Step(record=_enter(view, State.UNKNOWN, message, now=now, target=wanted), actions=(Assign(wanted),))
    return Step(record=_enter(view, State.REQUIRED, record.message, now=now, failure="", failed_target=""))


def start(view: View, wanted: str, *, now: float) -> Step:
    """The first step of a node that may go."""
    return Step(
        record=_enter(
            view, State.CORDON, "is about to be cordoned", now=now, target=wanted, failure="", failed_target="", gave_back=""
        )
    )


def advance(view: View, policy: Policy, *, now: float) -> Step:
    """The next step of a node under way."""
    state = view.record.state
    if state in _CORDONED and not view.unschedulable:  # pods that come now would lose their GPU
        return _stay(view, "was uncordoned in the midst of its upgrade, and is cordoned again", Cordon())
    if state in _DRIVER_BUSY and not view.ready:  # a reboot perhaps, which says nothing of a driver: its time begins anew
        message = "waits until the node is Ready; its kubelet does not report"
        return Step(record=replace(view.record, since=now, message=message))
    return _WAYS[state](view, policy, now)


def _cordon(view: View, policy: Policy, now: float) -> Step:
    if view.foreign_cordon:
        return _give_back(view, policy, "somebody else cordoned the node as its upgrade began", now=now)
    if view.cordoned_by_us and view.unschedulable:
        return Step(record=_enter(view, State.JOBS, "is cordoned", now=now))
    return _stay(view, "is about to be cordoned", Cordon())


def _jobs(view: View, policy: Policy, now: float) -> Step:
    running = [pod.name for pod in view.pods if pod.finishes]
    if running and now - view.record.since < policy.wait_for_jobs_seconds:
        left = (policy.wait_for_jobs_seconds - (now - view.record.since)) / 60
        return _stay(view, f"waits up to {left:.0f} min more for the Jobs of {_some(running)}")
    return Step(record=_enter(view, State.PODS, "its GPU pods are about to be evicted", now=now))


def _pods(view: View, policy: Policy, now: float) -> Step:
    if not view.pods and view.offered:
        return _stay(view, "waits until its agent and plugin have withdrawn the GPUs")
    if not view.pods:
        return Step(record=_enter(view, State.RESTART, "no pod has a GPU; the driver is about to be exchanged", now=now))
    names = tuple(pod.name for pod in view.pods)
    refused = next((f": {pod.name}: {pod.refused}" for pod in view.pods if pod.refused), "")
    if now - view.record.since >= policy.evict_seconds and not view.record.failure:  # on the way back there is no way back
        why = f"{_some(names)} still had a GPU after {policy.evict_seconds:g} s{refused}"
        return _give_back(view, policy, why, now=now)
    return _stay(view, f"waits until {_some(names)} have left{refused}", Evict(names))


def _restart(view: View, policy: Policy, now: float) -> Step:
    record = view.record
    if view.pods or (view.offered and view.assigned != record.target):
        return Step(record=_enter(view, State.PODS, "pods have a GPU again or could get one", now=now))
    if view.assigned not in ("", record.target) or (view.driver is not None and view.driver.revision != record.target):
        return _stay(view, "waits until the driver container of before has ended", Assign(""))
    if view.driver is not None and view.driver.ready:
        return Step(record=_enter(view, State.VALIDATION, "the driver runs and is about to be validated", now=now))
    trouble = view.driver.trouble if view.driver else ""
    if not trouble and now - record.since >= policy.driver_seconds:
        trouble = f"the driver container was not ready after {policy.driver_seconds:g} s"
    if trouble:
        return _give_up(view, policy, trouble, now=now)
    return _stay(view, "waits until the driver container is ready", Assign(record.target))


def _validation(view: View, policy: Policy, now: float) -> Step:
    record = view.record
    if view.driver is None or view.driver.revision != record.target or not view.driver.ready:
        return Step(record=_enter(view, State.RESTART, "the driver container went away while it was validated", now=now))
    if view.validated:
        return Step(record=_enter(view, State.UNCORDON, "the driver works", now=now, last_good=record.target))
    if now - record.since >= policy.validation_seconds:
        return _give_up(view, policy, f"the driver runs and the node is not in order: {view.lacks or 'unknown why'}", now=now)
    return _stay(view, f"waits until the node is in order: {view.lacks or 'not looked at yet'}")


def _uncordon(view: View, _policy: Policy, now: float) -> Step:
    if view.cordoned_by_us:
        return _stay(view, view.record.message, Uncordon())
    if view.record.failure:
        return Step(record=_enter(view, State.FAILED, view.record.failure, now=now))
    if not view.record.target:
        return Step(record=_enter(view, State.REQUIRED, "waits for its next try", now=now))
    return Step(record=_enter(view, State.DONE, f"runs {view.record.target}", now=now))


_WAYS: Final[dict[State, Callable[[View, Policy, float], Step]]] = {
    State.CORDON: _cordon,
    State.JOBS: _jobs,
    State.PODS: _pods,
    State.RESTART: _restart,
    State.VALIDATION: _validation,
    State.UNCORDON: _uncordon,
}


def _in_sync(view: View, wanted: str, *, now: float) -> Step:
    if view.driver is None or view.driver.revision != wanted or not view.driver.ready:
        state = view.record.state if view.record.state is State.DONE else State.UNKNOWN
        trouble = view.driver.trouble if view.driver else ""
        return Step(record=_enter(view, state, f"waits for its driver container{': ' + trouble if trouble else ''}", now=now))
    good = wanted if view.validated else view.record.last_good
    message = f"runs {wanted}" if view.validated else f"runs {wanted}, and the node is not in order: {view.lacks}"
    return Step(record=_enter(view, State.DONE, message, now=now, target=wanted, last_good=good, failure="", failed_target=""))


def _healed(view: View, wanted: str, *, now: float) -> Step:
    """A node that failed and whose driver works after all goes back to work by itself."""
    record = view.record
    works = view.driver is not None and view.driver.revision == record.target and view.driver.ready and view.validated
    if works and record.target == wanted:
        return Step(record=_enter(view, State.UNCORDON, "the driver works after all", now=now, last_good=wanted, failure=""))
    if works and view.cordoned_by_us:
        return Step(record=_enter(view, State.UNCORDON, f"{record.target} is back", now=now))
    return _stay(view, record.failure, Assign(record.target))


def _give_back(view: View, policy: Policy, why: str, *, now: float) -> Step:
    """Nothing was changed: the node goes back to work and is tried again later, and counts as no failure of the driver."""
    record = _enter(view, State.UNCORDON, f"is given back unchanged: {why}", now=now, target="", gave_back=why)
    return Step(record=replace(record, not_before=now + policy.again_seconds))


def _give_up(view: View, policy: Policy, why: str, *, now: float) -> Step:
    record = view.record
    if record.failure:  # the driver of before does not work either
        failure = f"{record.failure}; and {record.target}, which worked before, does not come back: {why}; the node stays cordoned"
        return Step(record=_enter(view, State.FAILED, failure, now=now, failure=failure))
    if policy.roll_back and record.last_good and record.last_good != record.target:
        failure = f"{record.target} does not work here: {why}; back to {record.last_good}"
        record = _fail(view, State.PODS, failure, now=now)
        return Step(record=replace(record, target=record.last_good))
    failure = f"{record.target} does not work here: {why}; the node stays cordoned"
    return Step(record=_fail(view, State.FAILED, failure, now=now))


def _fail(view: View, state: State, failure: str, *, now: float) -> Record:
    return _enter(view, state, failure, now=now, failure=failure, failed_target=view.record.target)


def _stay(view: View, message: str, *actions: Cordon | Uncordon | Evict | Assign) -> Step:
    return Step(record=replace(view.record, message=message), actions=actions)


def _enter(view: View, state: State, message: str, *, now: float, **changes: Any) -> Record:  # noqa: ANN401 - fields of a Record
    since = view.record.since if view.record.state is state else now
    return replace(view.record, state=state, since=since, message=message, **changes)


def _some(names: list[str] | tuple[str, ...]) -> str:
    """The first few names, and how many more."""
    more = f" and {len(names) - NAMES_TOLD} more" if len(names) > NAMES_TOLD else ""
    return ", ".join(names[:NAMES_TOLD]) + more
