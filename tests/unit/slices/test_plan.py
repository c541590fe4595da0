"""Which writes bring the stored slices to the desired pool, and what a scheduler sees on the way."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu_dra.slices.plan import Create, Delete, NodeOwner, Update, plan_writes
from gpu_dra.slices.pool import DesiredPool
from tests.unit.slices import samples
from tests.unit.slices.samples import OWNER, Server, device, pool

TAINT = {"key": "gpu.nvidia.com/unhealthy", "effect": "NoSchedule"}


@pytest.fixture
def server():
    return Server()


def plan(server, desired, owner=OWNER):
    writes = plan_writes(desired, server.slices(), owner=owner)
    for write in writes:
        if not isinstance(write, Delete):
            samples.check_payload(write.body)
    return writes


def apply(server, desired, owner=OWNER):
    writes = plan(server, desired, owner)
    for write in writes:
        server.carry_out(write)
    return writes


def kinds(writes):
    return [type(write) for write in writes]


def generations(server):
    return sorted(slice_["spec"]["pool"]["generation"] for slice_ in server.slices())


def test_the_first_publication_creates_every_slice_complete_and_owned_by_the_node(server):
    writes = apply(server, pool((device("a"),), (device("b"),)))
    assert kinds(writes) == [Create, Create]
    assert writes[0].body == {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {
            "generateName": "00000-gpu.nvidia.com-node-a-",
            "labels": {"app.kubernetes.io/managed-by": "gpu-dra"},
            "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "node-a", "uid": OWNER.uid, "controller": True}],
        },
        "spec": {
            "driver": "gpu.nvidia.com",
            "nodeName": "node-a",
            "pool": {"name": "node-a", "generation": 1, "resourceSliceCount": 2},
            "devices": [device("a")],
        },
    }


def test_nothing_is_written_when_nothing_changed(server):
    apply(server, pool((device("a"),), (device("b"),)))
    assert plan(server, pool((device("a"),), (device("b"),))) == ()


def test_an_empty_pool_is_published_once(server):
    apply(server, pool(()))
    assert plan(server, pool(())) == ()


def test_a_change_in_one_slice_keeps_the_generation(server):
    apply(server, pool((device("a"),), (device("b"),)))
    writes = apply(server, pool((device("a"),), (device("c"),)))
    assert kinds(writes) == [Update]
    assert generations(server) == [1, 1]


def test_changes_in_two_slices_go_to_all_slices_under_a_new_generation(server):
    """A scheduler must not take one slice from before and one from after for a pool."""
    apply(server, pool((device("a"),), (device("b"),), (device("c"),)))
    writes = apply(server, pool((device("x"),), (device("y"),), (device("c"),)))
    assert kinds(writes) == [Update, Update, Update]
    assert generations(server) == [2, 2, 2]


def test_one_slice_more_begins_a_new_generation(server):
    apply(server, pool((device("a"),)))
    writes = apply(server, pool((device("a"),), (device("b"),)))
    assert kinds(writes) == [Update, Create]
    assert generations(server) == [2, 2]


def test_one_slice_less_is_deleted_before_the_rest_is_updated(server):
    apply(server, pool((device("a"),), (device("b"),)))
    writes = apply(server, pool((device("a"),)))
    assert kinds(writes) == [Delete, Update]


def test_a_slice_deleted_by_hand_is_created_again(server):
    apply(server, pool((device("a"),), (device("b"),)))
    gone = next(name for name in server.stored if name.startswith("00001"))
    del server.stored[gone]
    writes = apply(server, pool((device("a"),), (device("b"),)))
    assert kinds(writes) == [Update, Create]
    assert plan(server, pool((device("a"),), (device("b"),))) == ()


def test_a_slice_edited_by_hand_is_put_right(server):
    apply(server, pool((device("a"),)))
    (slice_,) = server.slices()
    slice_["spec"]["devices"][0]["attributes"]["type"] = {"string": "banana"}
    assert kinds(apply(server, pool((device("a"),)))) == [Update]
    assert plan(server, pool((device("a"),))) == ()


def test_slices_of_nvidias_driver_under_its_older_names_are_replaced(server):
    server.add("node-a-gpu.nvidia.com-x7k2p", _spec(device("a"), generation=4))
    writes = apply(server, pool((device("a"),)))
    assert kinds(writes) == [Delete, Create]
    assert generations(server) == [5]


def test_slices_of_nvidias_driver_under_its_newer_names_are_taken_over(server):
    """Same name, same content: nothing to write, and no moment without devices."""
    server.add("00000-gpu.nvidia.com-node-a-x7k2p", _spec(device("a"), generation=7))
    assert plan(server, pool((device("a"),))) == ()
    assert kinds(apply(server, pool((device("b"),)))) == [Update]
    assert generations(server) == [7]


def test_of_two_slices_for_one_place_the_newer_stays(server):
    server.add("00000-gpu.nvidia.com-node-a-aaaaa", _spec(device("a"), generation=1))
    server.add("00000-gpu.nvidia.com-node-a-bbbbb", _spec(device("a"), generation=2))
    (write,) = apply(server, pool((device("a"),)))
    assert write == Delete(name="00000-gpu.nvidia.com-node-a-aaaaa", uid="uid-1", resource_version="1")


def test_slices_of_another_pool_of_this_node_are_deleted(server):
    server.add("00000-gpu.nvidia.com-node-a-aaaaa", _spec(device("a"), name="other"))
    writes = apply(server, pool((device("a"),)))
    assert kinds(writes) == [Delete, Create]


def test_a_publication_that_stopped_half_way_goes_on_in_its_generation(server):
    old, new = pool((device("a"),), (device("b"),)), pool((device("x"),), (device("y"),))
    apply(server, old)
    server.carry_out(plan(server, new)[0])
    assert kinds(apply(server, new)) == [Update]
    assert generations(server) == [2, 2]


def test_slices_follow_a_node_that_was_made_anew_without_a_new_generation(server):
    desired = pool((device("a"),), (device("b"),))
    apply(server, desired)
    again = NodeOwner(name=OWNER.name, uid="22222222-2222-2222-2222-222222222222")
    assert kinds(apply(server, desired, again)) == [Update, Update]
    assert {slice_["metadata"]["ownerReferences"][0]["uid"] for slice_ in server.slices()} == {again.uid}
    assert generations(server) == [1, 1]


def test_the_time_of_a_taint_is_kept_when_something_else_changes(server):
    """The server sets a taint without a time anew; how long a GPU has been sick would be lost with every change."""
    apply(server, pool((device("a", taints=[TAINT]), device("b"))))
    (slice_,) = server.slices()
    slice_["spec"]["devices"] = [device("a", taints=[{**TAINT, "timeAdded": "2026-01-01T00:00:00Z"}]), device("b")]
    (write,) = plan(server, pool((device("a", taints=[TAINT]), device("c"))))
    assert write.body["spec"]["devices"][0]["taints"] == [{**TAINT, "timeAdded": "2026-01-01T00:00:00Z"}]


def test_a_taint_whose_time_the_server_set_is_no_change(server):
    apply(server, pool((device("a", taints=[TAINT]),)))
    (slice_,) = server.slices()
    slice_["spec"]["devices"] = [device("a", taints=[{**TAINT, "timeAdded": "2026-01-01T00:00:00Z"}])]
    assert plan(server, pool((device("a", taints=[TAINT]),))) == ()


def test_an_update_keeps_what_others_wrote_into_the_metadata(server):
    apply(server, pool((device("a"),)))
    (slice_,) = server.slices()
    slice_["metadata"]["labels"] = {"team": "x"}
    (write,) = plan(server, pool((device("b"),)))
    assert write.body["metadata"]["labels"] == {"team": "x", "app.kubernetes.io/managed-by": "gpu-dra"}
    assert write.body["metadata"]["resourceVersion"] == slice_["metadata"]["resourceVersion"]


pools = st.lists(st.lists(st.sampled_from("abcdefgh"), max_size=3, unique=True), min_size=1, max_size=4)


@given(st.lists(pools, min_size=1, max_size=5), st.integers(0, 6))
@settings(max_examples=150, deadline=None)
def test_whatever_is_stored_one_plan_is_enough_and_no_mixture_is_ever_a_complete_pool(history, interrupted_after):
    """After each single write, a pool that is complete at its highest generation is the old one or the new one."""
    server, seen = Server(), []
    for index, pieces in enumerate(history):
        desired = _distinct(pieces)
        seen.append(_content(desired))
        writes = plan_writes(desired, server.slices(), owner=OWNER)
        stop = interrupted_after if index == len(history) - 2 else len(writes)
        for write in writes[:stop]:
            server.carry_out(write)
            visible = _complete_pool(server)
            assert visible is None or visible in seen
        if stop >= len(writes):
            assert plan_writes(desired, server.slices(), owner=OWNER) == ()
            assert _complete_pool(server) == seen[-1]


def _distinct(pieces):
    """A pool in which no device name is there twice."""
    return pool(*(tuple(device(f"{name}-{index}") for name in names) for index, names in enumerate(pieces)))


def _content(desired):
    return [[item["name"] for item in piece.devices] for piece in desired.slices]


def _complete_pool(server):
    """The pool as the scheduler's allocator sees it: all slices of the highest generation, if they are as many as they say."""
    highest = max((slice_["spec"]["pool"]["generation"] for slice_ in server.slices()), default=0)
    current = sorted(
        (slice_ for slice_ in server.slices() if slice_["spec"]["pool"]["generation"] == highest),
        key=lambda slice_: slice_["metadata"]["name"],
    )
    if not current or any(slice_["spec"]["pool"]["resourceSliceCount"] != len(current) for slice_ in current):
        return None
    return [[item["name"] for item in slice_["spec"]["devices"]] for slice_ in current]


def _spec(*devices, generation=1, name="node-a"):
    count = {"name": name, "generation": generation, "resourceSliceCount": 1}
    return {"driver": "gpu.nvidia.com", "nodeName": "node-a", "pool": count, "devices": list(devices)}


def test_a_withdrawn_pool_takes_back_our_slices_and_leaves_those_of_another_driver_of_our_name(server):
    apply(server, pool((device("a"),)))
    server.add("00000-gpu.nvidia.com-node-a-zzzzz", _spec(device("a")), labels={})
    withdrawn = DesiredPool(driver="gpu.nvidia.com", node_name="node-a", slices=())
    assert withdrawn.withdrawn
    assert kinds(apply(server, withdrawn)) == [Delete]
    assert [slice_["metadata"]["name"] for slice_ in server.slices()] == ["00000-gpu.nvidia.com-node-a-zzzzz"]
    assert apply(server, withdrawn) == ()
