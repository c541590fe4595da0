"""The stored slices stay what was published, whatever happens to them, to the Node, to the API server or to another plugin."""

import asyncio
import contextlib
import copy
from dataclasses import dataclass, field

import pytest

from gpu_dra.core.clock import FakeClock
from gpu_dra.core.locks import LockDirectory
from gpu_dra.kube.api import NODES, RESOURCE_SLICES
from gpu_dra.kube.errors import Forbidden, Gone, Invalid, TooManyRequests, Unavailable, WriteConflict
from gpu_dra.kube.fake import FakeKubeApi
from gpu_dra.kube.rest import Verb
from gpu_dra.slices.publisher import REFUSAL_HOLDS, SlicePublisher
from tests.unit.slices.samples import DRIVER, NODE, check_payload, device, pool

TAINT = {"key": "gpu.nvidia.com/unhealthy", "effect": "NoSchedule"}


@dataclass
class Notebook:
    """An observer that writes down what it is told."""

    standby: int = 0
    writes: list = field(default_factory=list)
    checks: list = field(default_factory=list)
    losses: list = field(default_factory=list)
    refusals: list = field(default_factory=list)
    taken: int = 0
    failures: list = field(default_factory=list)

    def standing_by(self):
        self.standby += 1

    def took_over(self):
        self.taken += 1

    def wrote(self, verb):
        self.writes.append(verb)

    def published(self, *, slices, devices):
        self.checks.append((slices, devices))

    def not_kept(self, dropped):
        self.losses.extend(dropped)

    def refused(self, error):
        self.refusals.append(error)

    def failed(self, error, *, retry_in):
        self.failures.append((error, retry_in))


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def api(clock):
    api = FakeKubeApi(clock=clock)
    api.store.validators.append(_must_fit_the_official_model)
    _create_node(api)
    return api


@pytest.fixture
def notebook():
    return Notebook()


@pytest.fixture
def make_publisher(api, clock, tmp_path):
    def make(observer):
        return SlicePublisher(api, driver=DRIVER, node_name=NODE, clock=clock, locks=LockDirectory(tmp_path), observer=observer)

    return make


@pytest.fixture
async def publisher(make_publisher, notebook):
    publisher = make_publisher(notebook)
    async with running(publisher):
        yield publisher


@pytest.fixture
def forbidden(api):
    api.fail(Forbidden("may not list resourceslices"), verb=Verb.LIST)


@pytest.fixture
def blind(api):
    api.fail(Forbidden("may not watch resourceslices"), verb=Verb.WATCH, times=None)


@pytest.fixture
async def published(api, publisher, clock):
    """One GPU is published, and everything that follows from it has happened."""
    publisher.publish(pool((device("gpu-0"),)))
    await until(offers(api, "gpu-0"))
    await clock.settle()


@contextlib.asynccontextmanager
async def running(publisher):
    task = asyncio.create_task(publisher.run())
    try:
        yield task
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def until(condition):
    """Let everything run until `condition` holds; no time passes."""
    for _ in range(500):
        if condition():
            return
        await asyncio.sleep(0)
    raise AssertionError("did not happen")


def offered(api):
    """Device names of all stored slices."""
    return [item["name"] for slice_ in api.store.list(RESOURCE_SLICES) for item in slice_["spec"].get("devices", [])]


def offers(api, *names):
    return lambda: offered(api) == list(names)


def verbs(api):
    return [call.verb for call in api.writes]


def lists(api):
    return sum(call.verb is Verb.LIST for call in api.calls)


async def test_the_first_pool_is_written_at_once_and_told(api, publisher, notebook):
    publisher.publish(pool((device("gpu-0"), device("gpu-1"))))
    await until(offers(api, "gpu-0", "gpu-1"))
    await until(lambda: notebook.checks == [(1, 2)])
    assert notebook.writes == ["create"]


async def test_an_unchanged_pool_costs_no_call_at_all(api, published, publisher, clock):
    calls = len(api.calls)
    publisher.publish(pool((device("gpu-0"),)))
    await clock.advance(120)
    assert len(api.calls) == calls


async def test_an_hour_of_quiet_costs_watch_requests_only(api, published, clock):
    calls = len(api.calls)
    await clock.advance(3600)
    assert {call.verb for call in api.calls[calls:]} == {Verb.WATCH}


async def test_a_restart_without_a_change_lists_once_and_writes_nothing(api, make_publisher, clock):
    async with running(first := make_publisher(Notebook())):
        first.publish(pool((device("gpu-0"),)))
        await until(offers(api, "gpu-0"))
    api.calls.clear()
    async with running(second := make_publisher(Notebook())):
        second.publish(pool((device("gpu-0"),)))
        await clock.advance(10)
    assert api.writes == []
    assert lists(api) == 1


async def test_stopping_leaves_the_slices(api, make_publisher):
    async with running(publisher := make_publisher(Notebook())):
        publisher.publish(pool((device("gpu-0"),)))
        await until(offers(api, "gpu-0"))
    assert offered(api) == ["gpu-0"]


async def test_a_slice_deleted_by_hand_is_back_at_once(api, published):
    """The kubelet deletes all slices of its node when it starts; NVIDIA's driver takes 30 to 60 s."""
    _delete_all(api)
    await until(offers(api, "gpu-0"))


async def test_a_slice_edited_by_hand_is_put_right_at_once(api, published):
    (slice_,) = api.store.list(RESOURCE_SLICES)
    slice_["spec"]["devices"].append(device("gpu-99"))
    api.store.update(RESOURCE_SLICES, slice_)
    await until(offers(api, "gpu-0"))


async def test_changes_in_quick_succession_cause_no_conflict(api, publisher, notebook, clock):
    """The watch still tells of the first write when the second is done; taken for drift it would be undone."""
    publisher.publish(pool((device("gpu-0"),)))
    await until(offers(api, "gpu-0"))
    publisher.publish(pool((device("gpu-1"),)))
    await until(offers(api, "gpu-1"))
    publisher.publish(pool((device("gpu-2"),)))
    await until(offers(api, "gpu-2"))
    await clock.advance(10)
    assert notebook.failures == []
    assert verbs(api) == ["create", "update", "update"]


async def test_a_slice_under_a_foreign_name_is_replaced(api, publisher):
    _create_slice(api, "node-a-gpu.nvidia.com-x7k2p", device("gpu-0"))
    publisher.publish(pool((device("gpu-0"),)))
    await until(lambda: [slice_["metadata"]["name"][:5] for slice_ in api.store.list(RESOURCE_SLICES)] == ["00000"])


async def test_slices_of_other_nodes_and_drivers_are_left_alone(api, publisher, clock):
    _create_slice(api, "other-node", device("gpu-0"), nodeName="node-b")
    _create_slice(api, "other-driver", device("nic-0"), driver="net.example.com")
    publisher.publish(pool((device("gpu-1"),)))
    await clock.advance(10)
    assert offered(api) == ["gpu-1", "nic-0", "gpu-0"]


async def test_slices_that_went_with_their_node_come_back_owned_by_the_new_one(api, published):
    """Node object deleted and made anew: the garbage collector takes the slices of the old one."""
    api.store.delete(NODES, NODE)
    node = _create_node(api)
    _delete_all(api)
    await until(offers(api, "gpu-0"))
    assert _owner_uids(api) == [node["metadata"]["uid"]]


async def test_slices_that_outlived_their_node_are_given_to_the_new_one(api, published, publisher):
    """A kubelet that makes its Node anew registers the plugin anew, before the garbage collector may have noticed."""
    api.store.delete(NODES, NODE)
    node = _create_node(api)
    publisher.resync()
    await until(lambda: _owner_uids(api) == [node["metadata"]["uid"]])


async def test_slices_wait_for_their_node(api, publisher, notebook, clock):
    api.store.delete(NODES, NODE)
    publisher.publish(pool((device("gpu-0"),)))
    await clock.advance(5)
    assert api.writes == []
    assert "Node node-a does not exist" in str(notebook.failures[0][0])
    _create_node(api)
    await clock.advance(30)
    assert offered(api) == ["gpu-0"]


async def test_a_storm_of_changes_becomes_one_change_per_two_seconds(api, publisher, clock):
    for number in range(60):
        publisher.publish(pool((device(f"gpu-{number}"),)))
        await clock.advance(0.1)
    assert len(api.writes) <= 5 + 3
    await clock.advance(2)
    assert offered(api) == ["gpu-59"]


async def test_a_contender_that_deletes_again_and_again_costs_one_write_per_two_seconds(api, published, clock):
    for _ in range(100):
        _delete_all(api)
        await clock.advance(0.2)
    assert len(api.writes) <= 5 + 10


async def test_while_the_server_is_away_nothing_is_withdrawn_and_then_the_change_is_made(
    api, published, publisher, notebook, clock
):
    with api.outage():
        publisher.publish(pool((device("gpu-1"),)))
        await clock.advance(60)
        assert offered(api) == ["gpu-0"]
    await clock.advance(30)
    assert offered(api) == ["gpu-1"]
    assert max(retry_in for _, retry_in in notebook.failures) <= 30


async def test_a_server_that_is_away_at_the_start_is_waited_for(api, make_publisher, clock):
    async with running(publisher := make_publisher(Notebook())):
        with api.outage():
            publisher.publish(pool((device("gpu-0"),)))
            await clock.advance(60)
        await clock.advance(30)
    assert lists(api) > 1
    assert offered(api) == ["gpu-0"]


async def test_tries_become_rarer_while_the_server_is_away(api, published, publisher, clock):
    calls = len(api.calls)
    with api.outage():
        publisher.publish(pool((device("gpu-1"),)))
        await clock.advance(300)
    assert len(api.calls) - calls < 60


async def test_a_server_that_asks_to_wait_is_given_that_time(api, publisher, clock):
    api.fail(TooManyRequests("busy", retry_after=20), verb=Verb.CREATE)
    publisher.publish(pool((device("gpu-0"),)))
    await clock.advance(19)
    assert offered(api) == []
    await clock.advance(2)
    assert offered(api) == ["gpu-0"]


async def test_a_conflict_is_answered_with_a_fresh_list(api, published, publisher, clock):
    api.fail(WriteConflict("changed meanwhile"), verb=Verb.UPDATE)
    publisher.publish(pool((device("gpu-1"),)))
    await clock.advance(1)
    assert offered(api) == ["gpu-1"]
    assert lists(api) == 2


async def test_a_write_whose_answer_was_lost_is_not_done_twice(api, publisher, clock):
    api.fail(Unavailable("timed out"), verb=Verb.CREATE, answer_lost=True)
    publisher.publish(pool((device("gpu-0"),)))
    await clock.advance(30)
    assert verbs(api) == ["create"]
    assert offered(api) == ["gpu-0"]


async def test_what_the_server_refuses_is_reported_and_not_sent_again_at_once(api, publisher, notebook, clock):
    api.fail(Invalid("spec.devices[0].name: bad"), verb=Verb.CREATE)
    publisher.publish(pool((device("gpu-0"),)))
    await clock.advance(REFUSAL_HOLDS - 10)
    assert verbs(api) == ["create"]
    assert [str(error) for error in notebook.refusals] == ["spec.devices[0].name: bad"]


async def test_a_refusal_that_passes_needs_no_restart(api, publisher, clock):
    """An admission policy answers Invalid too, and may be lifted."""
    api.fail(Invalid("denied: change freeze"), verb=Verb.CREATE)
    publisher.publish(pool((device("gpu-0"),)))
    await clock.advance(2 * REFUSAL_HOLDS + 10)
    assert offered(api) == ["gpu-0"]


async def test_a_registration_makes_a_refused_pool_worth_a_try(api, publisher, clock):
    api.fail(Invalid("denied: change freeze"), verb=Verb.CREATE)
    publisher.publish(pool((device("gpu-0"),)))
    await clock.advance(5)
    publisher.resync()
    await until(offers(api, "gpu-0"))


async def test_after_a_refusal_another_pool_is_tried(api, publisher, clock):
    api.fail(Invalid("spec.devices[0].name: bad"), verb=Verb.CREATE)
    publisher.publish(pool((device("gpu-0"),)))
    await clock.settle()
    publisher.publish(pool((device("gpu-1"),)))
    await until(offers(api, "gpu-1"))


async def test_a_missing_right_is_waited_for_too(forbidden, api, publisher, notebook, clock):
    """A role that is bound a minute late must not need a restart."""
    publisher.publish(pool((device("gpu-0"),)))
    await clock.advance(2)
    assert offered(api) == ["gpu-0"]
    assert "may not list" in str(notebook.failures[0][0])


async def test_without_the_right_to_watch_the_lists_become_rare(blind, api, publisher, notebook, clock):
    """Each list goes well, and a thousand nodes that list twice a second are a heavy load."""
    publisher.publish(pool((device("gpu-0"),)))
    await clock.advance(120)
    assert offered(api) == ["gpu-0"]
    assert "may not watch" in str(notebook.failures[0][0])
    assert len(notebook.failures) < 15


async def test_a_sick_gpu_is_withdrawn_from_a_server_that_drops_its_taint(api, publisher, notebook, clock):
    api.store.transforms.append(_gate_off("taints"))
    publisher.publish(pool((device("gpu-0", taints=[TAINT]), device("gpu-1"))))
    await until(offers(api, "gpu-1"))
    await clock.advance(60)
    assert verbs(api) == ["create", "update"]
    assert "DRADeviceTaints" in notebook.losses[0].reason


async def test_a_field_that_the_server_drops_is_reported_once_and_not_sent_for_ever(api, publisher, notebook, clock):
    api.store.transforms.append(_gate_off("bindsToNode"))
    publisher.publish(pool((device("gpu-0", bindsToNode=True),)))
    await clock.advance(60)
    assert verbs(api) == ["create"]
    assert len(notebook.losses) == 1
    assert offered(api) == ["gpu-0"]


async def test_a_second_plugin_stands_by_until_the_first_ends(api, make_publisher, clock):
    """In a rolling update two plugins overlap; if both wrote they would undo each other's work for ever."""
    old, new = make_publisher(Notebook()), make_publisher(newer := Notebook())
    async with contextlib.AsyncExitStack() as second:
        async with running(old):
            old.publish(pool((device("gpu-0"),)))
            await until(offers(api, "gpu-0"))
            await second.enter_async_context(running(new))
            new.publish(pool((device("gpu-1"),)))
            await clock.advance(20)
            assert offered(api) == ["gpu-0"]
            assert (newer.standby, newer.taken) == (1, 0)
        await clock.advance(1)
        assert newer.taken == 1
        await until(offers(api, "gpu-1"))


async def test_a_resync_finds_what_a_dead_watch_did_not_tell(api, published, publisher, clock):
    """After registration the kubelet's wipe is certain, the health of a watch connection is not."""
    api.hang_watches()
    _delete_all(api)
    await clock.settle()
    assert offered(api) == []
    publisher.resync()
    await until(offers(api, "gpu-0"))


async def test_what_happened_while_a_watch_was_away_is_repaired(api, published, clock):
    """Whether the server still remembers where we were or not."""
    api.break_watches(Gone("too old"))
    _delete_all(api)
    api.store.forget_history()
    await clock.advance(2)
    assert offered(api) == ["gpu-0"]


def _create_node(api):
    return api.store.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}})


def _create_slice(api, name, *devices, **spec):
    base = {
        "driver": DRIVER,
        "nodeName": NODE,
        "pool": {"name": NODE, "generation": 1, "resourceSliceCount": 1},
        "devices": list(devices),
    }
    body = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": name}, "spec": {**base, **spec}}
    api.store.create(RESOURCE_SLICES, body)


def _owner_uids(api):
    return [slice_["metadata"]["ownerReferences"][0]["uid"] for slice_ in api.store.list(RESOURCE_SLICES)]


def _delete_all(api):
    """What the kubelet does when it starts, and the garbage collector when a Node is gone."""
    for slice_ in api.store.list(RESOURCE_SLICES):
        api.store.delete(RESOURCE_SLICES, slice_["metadata"]["name"])


def _gate_off(field):
    """A server that drops one device field."""

    def store(resource, body):
        body = copy.deepcopy(body)
        for item in body["spec"].get("devices", []) if resource is RESOURCE_SLICES else []:
            item.pop(field, None)
        return body

    return store


def _must_fit_the_official_model(resource, body):
    if resource is RESOURCE_SLICES:
        check_payload(body)
