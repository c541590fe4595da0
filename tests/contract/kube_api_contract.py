"""What every `KubeApi` does, be it in memory, over HTTP to the fake, or over HTTP to a real API server.

A subclass gives the fixture `api`. Names are unique to a test, since a real server's other tenants are not ours to remove.
"""

import asyncio
import secrets
from contextlib import aclosing

import pytest

from gpu_dra.core.clock import SystemClock
from gpu_dra.kube.api import EVENTS, RESOURCE_CLAIMS, RESOURCE_SLICES, Resource, WatchKind
from gpu_dra.kube.errors import AlreadyExists, Invalid, NotFound, WriteConflict
from gpu_dra.kube.events import EventRecorder, Reference, Severity
from gpu_dra.kube.watch import Changed, Deleted, Listed, Selection, follow

DRIVER = "contract.example.com"
NAMESPACE = "default"


def slice_of(node, **metadata):
    return {
        "metadata": {"generateName": f"{node}-"} | metadata,
        "spec": {
            "driver": DRIVER,
            "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            "devices": [],
        },
    }


def claim_named(name):
    return {
        "metadata": {"name": name},
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com"}}]}},
    }


ALLOCATION = {"devices": {"results": [{"request": "gpu", "driver": DRIVER, "pool": "p", "device": "gpu-0"}]}}


class KubeApiContract:
    @pytest.fixture
    def node(self):
        return f"node-{secrets.token_hex(4)}"

    @pytest.fixture
    async def stored(self, api, node):
        return await api.create(RESOURCE_SLICES, slice_of(node))

    @pytest.fixture
    async def claim(self, api):
        return await api.create(RESOURCE_CLAIMS, claim_named(f"claim-{secrets.token_hex(4)}"), namespace=NAMESPACE)

    async def test_the_server_tells_its_version(self, api):
        version = await api.server_version()
        assert (version.major, version.minor) >= (1, 34)

    async def test_a_created_object_has_an_identity_and_says_what_it_is(self, stored, node):
        metadata = stored["metadata"]
        assert (stored["apiVersion"], stored["kind"]) == ("resource.k8s.io/v1", "ResourceSlice")
        assert metadata["name"].startswith(f"{node}-")
        assert metadata["uid"]
        assert metadata["resourceVersion"]
        assert metadata["generation"] == 1

    async def test_what_was_stored_is_what_is_read(self, api, stored, claim):
        assert await api.get(RESOURCE_SLICES, stored["metadata"]["name"]) == stored
        assert await api.get(RESOURCE_CLAIMS, claim["metadata"]["name"], namespace=NAMESPACE) == claim

    async def test_a_missing_object_is_not_found_and_named(self, api):
        with pytest.raises(NotFound, match="no-such-claim"):
            await api.get(RESOURCE_CLAIMS, "no-such-claim", namespace=NAMESPACE)

    async def test_an_api_that_is_not_served_is_not_found(self, api):
        with pytest.raises(NotFound, match=r"could not find the requested resource|404 page not found"):
            await api.list(Resource(group="contract.example.com", version="v1", plural="unknowns", namespaced=False))

    async def test_a_namespaced_object_needs_its_namespace(self, api):
        """Without it the path would be that of all namespaces, and the error that of a stranger."""
        with pytest.raises(ValueError, match="namespace"):
            await api.get(RESOURCE_CLAIMS, "claim")

    async def test_a_name_is_taken_once(self, api, stored, node):
        with pytest.raises(AlreadyExists, match=stored["metadata"]["name"]):
            await api.create(RESOURCE_SLICES, slice_of(node, name=stored["metadata"]["name"]))

    async def test_an_object_without_a_name_is_invalid(self, api, node):
        with pytest.raises(Invalid, match="name"):
            await api.create(RESOURCE_SLICES, slice_of(node, generateName=""))

    async def test_an_update_from_an_old_state_conflicts(self, api, stored):
        await api.update(RESOURCE_SLICES, _labelled(stored, "first"))
        with pytest.raises(WriteConflict):
            await api.update(RESOURCE_SLICES, _labelled(stored, "second"))

    async def test_an_update_without_a_resource_version_wins_over_any_state(self, api, stored):
        await api.update(RESOURCE_SLICES, _labelled(stored, "first"))
        unconditional = _labelled(stored, "second")
        del unconditional["metadata"]["resourceVersion"]
        assert (await api.update(RESOURCE_SLICES, unconditional))["metadata"]["labels"] == {"mark": "second"}

    async def test_an_update_of_another_object_under_the_same_name_conflicts(self, api, stored):
        stranger = _labelled(stored, "x")
        stranger["metadata"]["uid"] = "00000000-0000-0000-0000-000000000000"
        with pytest.raises(WriteConflict):
            await api.update(RESOURCE_SLICES, stranger)

    async def test_an_update_that_changes_nothing_is_not_a_write(self, api, stored):
        assert (await api.update(RESOURCE_SLICES, stored))["metadata"]["resourceVersion"] == stored["metadata"]["resourceVersion"]

    async def test_generation_counts_changes_of_spec_only(self, api, stored):
        labelled = await api.update(RESOURCE_SLICES, _labelled(stored, "x"))
        labelled["spec"]["pool"]["generation"] = 2
        changed = await api.update(RESOURCE_SLICES, labelled)
        assert (labelled["metadata"]["generation"], changed["metadata"]["generation"]) == (1, 2)

    async def test_an_update_of_a_missing_object_is_not_found(self, api, node):
        with pytest.raises(NotFound):
            await api.update(RESOURCE_SLICES, slice_of(node, name=f"{node}-gone"))

    async def test_a_deleted_object_is_gone(self, api, stored):
        name = stored["metadata"]["name"]
        await api.delete(RESOURCE_SLICES, name)
        with pytest.raises(NotFound):
            await api.get(RESOURCE_SLICES, name)
        with pytest.raises(NotFound):
            await api.delete(RESOURCE_SLICES, name)

    async def test_a_delete_whose_preconditions_do_not_hold_deletes_nothing(self, api, stored):
        name = stored["metadata"]["name"]
        with pytest.raises(WriteConflict):
            await api.delete(RESOURCE_SLICES, name, uid="00000000-0000-0000-0000-000000000000")
        with pytest.raises(WriteConflict):
            await api.delete(RESOURCE_SLICES, name, resource_version="1")
        assert await api.get(RESOURCE_SLICES, name) == stored

    async def test_a_delete_whose_preconditions_hold_deletes(self, api, stored):
        metadata = stored["metadata"]
        await api.delete(RESOURCE_SLICES, metadata["name"], uid=metadata["uid"], resource_version=metadata["resourceVersion"])
        with pytest.raises(NotFound):
            await api.get(RESOURCE_SLICES, metadata["name"])

    async def test_a_finalizer_holds_a_deleted_object_until_it_is_taken_away(self, api, node):
        held = await api.create(RESOURCE_SLICES, slice_of(node, finalizers=["contract.example.com/hold"]))
        name = held["metadata"]["name"]
        await api.delete(RESOURCE_SLICES, name)
        marked = await api.get(RESOURCE_SLICES, name)
        assert marked["metadata"]["deletionTimestamp"]
        await api.update(RESOURCE_SLICES, marked | {"metadata": marked["metadata"] | {"finalizers": []}})
        with pytest.raises(NotFound):
            await api.get(RESOURCE_SLICES, name)

    async def test_status_and_the_rest_are_written_apart(self, api, claim):
        both = _labelled(claim, "x") | {"status": {"allocation": ALLOCATION}}
        after_update = await api.update(RESOURCE_CLAIMS, both, namespace=NAMESPACE)
        assert "allocation" not in after_update.get("status", {})
        unlabelled = after_update | {"status": {"allocation": ALLOCATION}}
        unlabelled["metadata"] = after_update["metadata"] | {"labels": {}}
        after_status = await api.update_status(RESOURCE_CLAIMS, unlabelled, namespace=NAMESPACE)
        assert after_status["status"]["allocation"]["devices"]["results"][0]["device"] == "gpu-0"
        assert after_status["metadata"]["labels"] == {"mark": "x"}

    async def test_a_list_can_be_narrowed_by_field_and_items_say_what_they_are(self, api, stored, node):
        await api.create(RESOURCE_SLICES, slice_of(f"{node}-other"))
        listed = await api.list(RESOURCE_SLICES, field_selector={"spec.nodeName": node, "spec.driver": DRIVER})
        assert listed.items == (stored,)

    async def test_a_list_can_be_narrowed_by_label(self, api, node):
        marked = await api.create(RESOURCE_SLICES, slice_of(node, labels={"mark": node}))
        await api.create(RESOURCE_SLICES, slice_of(node))
        listed = await api.list(RESOURCE_SLICES, label_selector={"mark": node})
        assert listed.items == (marked,)

    async def test_a_list_covers_one_namespace_or_all(self, api, claim):
        for namespace in (NAMESPACE, None):
            listed = await api.list(
                RESOURCE_CLAIMS, namespace=namespace, field_selector={"metadata.name": claim["metadata"]["name"]}
            )
            assert listed.items == (claim,)
        elsewhere = await api.list(RESOURCE_CLAIMS, namespace="kube-system")
        assert claim not in elsewhere.items

    async def test_a_field_that_cannot_be_selected_by_is_invalid(self, api):
        with pytest.raises(Invalid, match=r"spec\.colour"):
            await api.list(RESOURCE_SLICES, field_selector={"spec.colour": "green"})

    async def test_a_watch_tells_what_happened_after_the_list_in_order(self, api, node):
        start = (await api.list(RESOURCE_SLICES)).resource_version
        made = await api.create(RESOURCE_SLICES, slice_of(node))
        await api.create(RESOURCE_SLICES, slice_of(f"{node}-other"))
        changed = await api.update(RESOURCE_SLICES, _labelled(made, "x"))
        await api.delete(RESOURCE_SLICES, made["metadata"]["name"])
        events = await _first(3, api.watch(RESOURCE_SLICES, resource_version=start, field_selector={"spec.nodeName": node}))
        assert [event.kind for event in events] == [WatchKind.ADDED, WatchKind.MODIFIED, WatchKind.DELETED]
        assert [event.object for event in events[:2]] == [made, changed]
        assert events[2].object["metadata"]["uid"] == made["metadata"]["uid"]
        assert events[2].object["metadata"]["resourceVersion"] != changed["metadata"]["resourceVersion"]

    async def test_an_object_that_leaves_the_selection_is_deleted_for_the_watch(self, api, node):
        made = await api.create(RESOURCE_SLICES, slice_of(node, labels={"mark": node}))
        await api.update(RESOURCE_SLICES, _labelled(made, "other"))
        start = made["metadata"]["resourceVersion"]
        events = await _first(1, api.watch(RESOURCE_SLICES, resource_version=start, label_selector={"mark": node}))
        assert events[0].kind is WatchKind.DELETED

    async def test_a_watch_sees_what_happens_while_it_runs(self, api, stored, node):
        start = stored["metadata"]["resourceVersion"]
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(
                _first(1, api.watch(RESOURCE_SLICES, resource_version=start, field_selector={"spec.nodeName": node}))
            )
            await asyncio.sleep(0)
            await api.delete(RESOURCE_SLICES, stored["metadata"]["name"])
        assert waiting.result()[0].kind is WatchKind.DELETED

    async def test_a_quiet_watch_ends_in_time(self, api, stored, node):
        start = stored["metadata"]["resourceVersion"]
        nothing = {"spec.nodeName": f"{node}-x"}
        events = await _first(100, api.watch(RESOURCE_SLICES, resource_version=start, field_selector=nothing, timeout_seconds=1))
        assert {event.kind for event in events} <= {WatchKind.BOOKMARK}

    async def test_following_tells_what_is_there_what_comes_and_what_goes(self, api, stored, node):
        selection = Selection(resource=RESOURCE_SLICES, fields={"spec.nodeName": node})
        async with aclosing(follow(api, selection, clock=SystemClock())) as changes, asyncio.timeout(20):
            assert await anext(changes) == Changed(object=stored)
            assert await anext(changes) == Listed(objects=(stored,))
            changed = await api.update(RESOURCE_SLICES, _labelled(stored, "x"))
            assert await anext(changes) == Changed(object=changed)
            await api.delete(RESOURCE_SLICES, stored["metadata"]["name"])
            assert isinstance(await anext(changes), Deleted)

    async def test_an_event_about_an_object_is_stored(self, api, stored):
        """Slices are cluster-wide; events about such objects belong into the namespace default."""
        recorder = EventRecorder(api, clock=SystemClock(), component=DRIVER, instance="node-a")
        start = (await api.list(EVENTS)).resource_version
        recorder.record(Reference.of(stored), severity=Severity.WARNING, reason="Contract", message="said once")
        async with asyncio.TaskGroup() as group:
            writing = group.create_task(recorder.run())
            about = {"involvedObject.uid": stored["metadata"]["uid"]}
            events = await _first(1, api.watch(EVENTS, resource_version=start, namespace="default", field_selector=about))
            writing.cancel()
        event = events[0].object
        assert (event["type"], event["reason"], event["message"]) == ("Warning", "Contract", "said once")


async def _first(count, watch):
    """Up to `count` events, fewer only when the server ends the request."""
    events = []
    async with aclosing(watch), asyncio.timeout(20):
        async for event in watch:
            events.append(event)
            if len(events) == count:
                break
    return events


def _labelled(item, mark):
    return item | {"metadata": item["metadata"] | {"labels": {"mark": mark}}}
