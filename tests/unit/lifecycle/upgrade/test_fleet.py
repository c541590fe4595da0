"""Who may start, what each node waits for, and that one sick node stops nobody else."""

from dataclasses import replace

import pytest

from gpu_dra.lifecycle.upgrade.fleet import decide
from gpu_dra.lifecycle.upgrade.policy import Policy, Window
from gpu_dra.lifecycle.upgrade.view import Assign, Cordon, DriverPod, Evict, GpuPod, Record, State, Uncordon, View

NOW = 1_700_000_000.0
RUNS_OLD = View(
    name="a",
    record=Record(state=State.DONE, since=NOW - 9999, target="old", last_good="old"),
    assigned="old",
    driver=DriverPod(revision="old", ready=True),
    validated=True,
    offered=True,
)
POD = GpuPod(name="ml/train")


def node(name, state=None, *, since=NOW, **fields):
    """A node with the old driver, in a state on its way to the new one."""
    record = RUNS_OLD.record if state is None else replace(RUNS_OLD.record, state=state, since=since, target="new")
    record = replace(record, **fields.pop("record", {}))
    cordoned = {"unschedulable": True, "cordoned_by_us": True} if state not in (None, State.CORDON, State.FAILED) else {}
    return replace(RUNS_OLD, name=name, record=record, **(cordoned | fields))


def look(*views, policy=None, now=NOW):
    return decide(views, policy or Policy(max_unavailable=1), wanted="new", now=now)


def told(step):
    return step.record.state, step.record.message


def test_one_node_starts_and_the_next_says_whom_it_waits_for():
    steps = look(node("b"), node("a"))
    assert steps["a"].record.state is State.CORDON
    assert steps["a"].record.target == "new"
    assert told(steps["b"]) == (State.REQUIRED, "waits: 1 of at most 1 are under way")


def test_a_node_that_runs_what_is_wanted_is_done():
    done = node("a", assigned="new", driver=DriverPod(revision="new", ready=True))
    assert look(done)["a"].record.state is State.DONE
    assert look(done)["a"].record.last_good == "new"


def test_a_bare_node_gets_its_first_driver_without_a_drain():
    bare = View(name="a", record=Record())
    assert look(bare)["a"].actions == (Assign("new"),)
    assert look(bare)["a"].record.state is State.UNKNOWN


def test_a_sick_node_takes_a_place_and_stops_nobody_else():
    sick = node("a", ready=False)
    assert told(look(sick, node("b"))["b"]) == (State.REQUIRED, "waits: 1 of at most 1 are under way")
    steps = look(sick, node("b"), policy=Policy(max_unavailable=2, max_parallel=2))
    assert steps["a"].record.state is steps["b"].record.state is State.CORDON


def test_nodes_that_are_out_for_other_reasons_count_as_out():
    steps = look(node("a", unschedulable=True), node("b"))
    assert told(steps["b"]) == (State.REQUIRED, "waits: 1 of at most 1 nodes are out (a)")
    assert told(steps["a"]) == (State.REQUIRED, "waits until whoever cordoned the node uncordons it")


def test_a_node_is_left_out_by_its_label():
    steps = look(node("a", skip=True), node("b"))
    assert "nvidia.com/gpu-driver-upgrade.skip" in steps["a"].record.message
    assert steps["b"].record.state is State.CORDON


@pytest.mark.parametrize(
    ("policy", "why"),
    [
        (Policy(paused=True), "waits: the GpuStack is paused"),
        (Policy(auto=False), "waits: upgrade.auto is false"),
        (
            Policy(windows=(Window(cron="0 22 * * 6", seconds=3600.0),)),
            "waits: outside of the maintenance windows: 0 22 * * 6 (UTC) for 1 h",
        ),
    ],
)
def test_a_closed_policy_starts_nobody_and_lets_those_under_way_go_on(policy, why):
    steps = look(node("a"), node("b", State.UNCORDON), policy=policy)
    assert told(steps["a"]) == (State.REQUIRED, why)
    assert steps["b"].actions == (Uncordon(),)


def test_the_canary_goes_first_and_the_others_wait_for_it():
    canary = node("z", canary=True)
    steps = look(node("a"), canary, policy=Policy(max_parallel=0, max_unavailable=9))
    assert steps["z"].record.state is State.CORDON
    assert told(steps["a"]) == (State.REQUIRED, "waits for the canary z")


def test_a_failed_canary_stops_the_rollout_and_says_why():
    canary = node("z", State.FAILED, record={"failure": "no GPU answers", "failed_target": "new"}, canary=True)
    assert told(look(node("a"), canary)["a"]) == (State.REQUIRED, "waits: stopped after 1 failures: z: no GPU answers")


def test_pods_are_evicted_and_named_with_what_protects_them():
    protected = replace(POD, refused="the budget ml/train allows none")
    step = look(node("a", State.PODS, pods=(protected,)))["a"]
    assert step.actions == (Evict(("ml/train",)),)
    assert step.record.message == "waits until ml/train have left: ml/train: the budget ml/train allows none"


def test_a_node_whose_pods_cannot_leave_is_given_back_and_the_next_has_its_turn():
    stuck = node("a", State.PODS, since=NOW - 301, pods=(POD,))
    step = look(stuck, node("b"))["a"]
    assert step.record.state is State.UNCORDON
    given_back = replace(stuck, record=step.record, unschedulable=False, cordoned_by_us=False, pods=(POD,))
    step = look(given_back)["a"]
    assert step.record.state is State.REQUIRED
    steps = look(replace(given_back, record=step.record), node("b"))
    assert steps["b"].record.state is State.CORDON
    assert steps["a"].record.message == "is tried again in 30 min, since ml/train still had a GPU after 300 s"
    assert look(replace(given_back, record=step.record), now=NOW + 1801)["a"].record.state is State.CORDON


def test_jobs_are_waited_for_as_long_as_the_policy_says():
    job = replace(POD, finishes=True)
    policy = Policy(wait_for_jobs_seconds=3600)
    step = look(node("a", State.JOBS, since=NOW - 600, pods=(job,)), policy=policy)["a"]
    assert told(step) == (State.JOBS, "waits up to 50 min more for the Jobs of ml/train")
    assert look(node("a", State.JOBS, since=NOW - 3600, pods=(job,)), policy=policy)["a"].record.state is State.PODS


def test_the_driver_stays_until_no_pod_can_get_a_gpu_any_more():
    assert look(node("a", State.PODS, offered=True))["a"].actions == ()
    step = look(node("a", State.PODS, offered=False))["a"]
    assert step.record.state is State.RESTART
    assert look(node("a", State.RESTART, offered=False))["a"].actions == (Assign(""),)


def test_a_node_that_somebody_uncordons_in_between_is_cordoned_again():
    step = look(node("a", State.PODS, unschedulable=False))["a"]
    assert step.actions == (Cordon(),)


def test_a_driver_that_does_not_come_up_is_rolled_back_and_told():
    trouble = DriverPod(revision="new", trouble="no headers of 6.8.0")
    broken = node("a", State.RESTART, assigned="new", driver=trouble, offered=False)
    step = look(broken)["a"]
    assert step.record.state is State.PODS
    assert step.record.target == "old"
    assert step.record.failure == "new does not work here: no headers of 6.8.0; back to old"
    step = look(broken, policy=Policy(roll_back=False))["a"]
    assert told(step) == (State.FAILED, "new does not work here: no headers of 6.8.0; the node stays cordoned")


def test_a_node_that_reboots_in_the_midst_is_given_its_time_anew():
    away = node("a", State.RESTART, since=NOW - 9999, ready=False, assigned="new", driver=None, offered=False)
    step = look(away)["a"]
    assert step.record.state is State.RESTART
    assert step.record.since == NOW


def test_a_failed_node_is_tried_again_when_a_person_asks_or_another_driver_is_wanted():
    failed = node("a", State.FAILED, record={"failure": "no", "failed_target": "new", "target": "old"})
    assert look(failed)["a"].record.state is State.FAILED
    assert look(replace(failed, retry=True))["a"].record.state is State.CORDON
    assert decide((failed,), Policy(), wanted="newer", now=NOW)["a"].record.state is State.CORDON


def test_a_failed_node_whose_driver_works_after_all_goes_back_to_work():
    failed = node("a", State.FAILED, record={"failure": "no", "failed_target": "new"}, unschedulable=True, cordoned_by_us=True)
    healed = replace(failed, assigned="new", driver=DriverPod(revision="new", ready=True))
    assert look(healed)["a"].record.state is State.UNCORDON
    assert look(healed)["a"].record.failure == ""
