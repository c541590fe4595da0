"""GPU nodes are found by what is on their bus, and labelled so."""

import pytest

from gpu_dra.core.clock import FakeClock
from gpu_dra.kube.api import NODES
from gpu_dra.kube.errors import WriteConflict
from gpu_dra.kube.fake import FakeKubeApi
from gpu_dra.kube.rest import Verb
from gpu_dra.lifecycle.detect import watch
from gpu_dra.lifecycle.label import GPU_PRESENT, label_node, unlabel_node


@pytest.fixture
def bus(tmp_path):
    """Adds a PCI device."""

    def add(address="0000:3b:00.0", *, vendor="0x10de", kind="0x030200"):
        device = tmp_path / "bus/pci/devices" / address
        device.mkdir(parents=True)
        (device / "vendor").write_text(f"{vendor}\n")
        (device / "class").write_text(f"{kind}\n")

    add.root = tmp_path
    return add


def told(root, minutes, *, change=lambda _minute: None, works=lambda _call: True):
    """What was told in so many minutes; `change` acts at each look, `works` says whether the telling of a call works."""
    calls, passed = [], 0.0

    def stopped(seconds):
        nonlocal passed
        passed += seconds
        change(passed / 60)
        return passed >= 60 * minutes

    def tell(present):
        calls.append(present)
        return works(len(calls))

    watch(root, tell=tell, stopped=stopped, clock=lambda: passed)
    return calls


def test_a_gpu_is_told_at_once_and_every_ten_minutes(bus):
    bus()
    assert told(bus.root, 1) == [True]
    assert told(bus.root, 29) == [True, True, True]


@pytest.mark.parametrize(("vendor", "kind"), [("0x1002", "0x030200"), ("0x10de", "0x040300"), ("0x10de", "0x068000")])
def test_other_vendors_audio_functions_and_switches_are_no_gpu(bus, vendor, kind):
    bus(vendor=vendor, kind=kind)
    assert told(bus.root, 65) == [False]


def test_a_machine_without_a_pci_bus_has_no_gpu(tmp_path):
    assert told(tmp_path, 65) == [False]


def test_a_gpu_that_comes_late_is_told_at_once(bus):
    assert told(bus.root, 4, change=lambda minute: bus() if minute == 2 else None) == [True]


def test_a_gpu_that_is_away_for_less_than_an_hour_keeps_the_plugin_on_the_node(bus):
    bus()
    device = bus.root / "bus/pci/devices/0000:3b:00.0"

    def reset(minute):
        if minute == 5:
            device.rename(bus.root / "away")
        if minute == 55:
            (bus.root / "away").rename(device)

    assert set(told(bus.root, 120, change=reset)) == {True}


def test_a_gpu_that_is_gone_for_an_hour_is_told(bus):
    bus()
    device = bus.root / "bus/pci/devices/0000:3b:00.0"
    heard = told(bus.root, 66, change=lambda minute: device.rename(bus.root / "away") if minute == 5 else None)
    assert heard == [True, False]


def test_what_could_not_be_told_is_told_again_each_minute(bus):
    bus()
    assert told(bus.root, 5, works=lambda call: call > 2) == [True, True, True]


@pytest.fixture
def api():
    api = FakeKubeApi(clock=FakeClock())
    api.store.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-a", "labels": {"a": "b"}}})
    return api


def labels(api):
    return api.store.get(NODES, "node-a")["metadata"]["labels"]


async def test_the_label_is_written_once_and_leaves_others_alone(api):
    assert await label_node(api, "node-a", present=True)
    assert labels(api) == {"a": "b", GPU_PRESENT: "true"}
    assert not await label_node(api, "node-a", present=True)


async def test_a_node_that_never_had_a_gpu_is_not_touched(api):
    assert not await label_node(api, "node-a", present=False)
    assert api.writes == []


async def test_a_gpu_that_went_away_turns_the_label_to_false(api):
    await label_node(api, "node-a", present=True)
    assert await label_node(api, "node-a", present=False)
    assert labels(api)[GPU_PRESENT] == "false"


async def test_a_conflict_with_the_kubelet_is_tried_again(api):
    api.fail(WriteConflict("changed"), verb=Verb.UPDATE, times=3)
    assert await label_node(api, "node-a", present=True)
    assert labels(api)[GPU_PRESENT] == "true"


async def test_taking_the_label_away_leaves_the_others(api):
    await label_node(api, "node-a", present=True)
    await unlabel_node(api, "node-a", [GPU_PRESENT])
    assert labels(api) == {"a": "b"}
