"""The CDI file as a value: what may be in it, which version it says, and how it is read back."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_dra.cdi.spec import ContainerEdits, Device, DeviceNode, Hook, Mount, Spec, parse
from gpu_dra.core.errors import Broken
from tests.unit.cdi.generated_specs import specs

KIND = "k8s.gpu.nvidia.com/claim"
NODE = DeviceNode(path="/dev/nvidia0", major=195, minor=0)


def spec(name="a-gpu-0", *, own=None, common=None, kind=KIND):
    device = Device(name=name, edits=own or ContainerEdits(device_nodes=(NODE,)))
    return Spec(kind=kind, devices=(device,), edits=common or ContainerEdits())


@pytest.mark.parametrize(
    ("content", "version"),
    [
        (spec(), "0.3.0"),
        (spec("1a-gpu-0"), "0.5.0"),
        (spec(own=ContainerEdits(device_nodes=(DeviceNode(path="/dev/a", host_path="/dev/b", major=1, minor=1),))), "0.5.0"),
        (spec(kind="k8s.gpu.nvidia.com/claim.v2"), "0.6.0"),
        (spec(own=ContainerEdits(device_nodes=(NODE,), additional_gids=(44,))), "0.7.0"),
        (spec(common=ContainerEdits(additional_gids=(44,))), "0.7.0"),
    ],
    ids=["plain", "name-starts-with-digit", "host-path", "dot-in-class", "gids-of-device", "gids-common"],
)
def test_the_version_is_the_lowest_that_the_content_needs(content, version):
    """A runtime refuses a file newer than its own library, and containerd 1.7 carries an old one."""
    assert json.loads(content.to_json())["cdiVersion"] == version


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: spec(own=ContainerEdits()) and Device(name="a", edits=ContainerEdits()), "no edits"),
        (lambda: Spec(kind=KIND, devices=(), edits=ContainerEdits()), "at least one device"),
        (lambda: Spec(kind=KIND, devices=(spec().devices[0],) * 2, edits=ContainerEdits()), "twice"),
        (lambda: spec(kind="claim"), "not a CDI kind"),
        (lambda: spec(kind="9nvidia.com/claim"), "not a CDI kind"),
        (lambda: spec("ends-with-"), "not a CDI device name"),
        (lambda: spec("has space"), "not a CDI device name"),
        (lambda: DeviceNode(path="dev/nvidia0", major=1, minor=1), "not an absolute path"),
        (lambda: DeviceNode(path="/dev/x", type="d", major=1, minor=1), "not one of b, c, u, p"),
        (lambda: DeviceNode(path="/dev/x", permissions="rx", major=1, minor=1), "not made of r, w and m"),
        (lambda: DeviceNode(path="/dev/x", major=-1, minor=1), "negative"),
        (lambda: Mount(host_path="", container_path="/x", options=()), "not an absolute path"),
        (lambda: Hook(hook_name="beforeStart", path="/x"), "no moment"),
        (lambda: ContainerEdits(env=("=x",)), "KEY=VALUE"),
    ],
)
def test_an_invalid_spec_cannot_be_made(make, reason):
    """One broken rule makes a runtime ignore the whole file, and the pod hangs with 'unresolvable CDI devices'."""
    with pytest.raises(ValueError, match=reason):
        make()


@given(specs())
def test_a_written_spec_reads_back_the_same(original):
    assert parse(original.to_json()) == original


@given(specs())
def test_equal_specs_give_equal_bytes(original):
    """A file is compared with what it should be; an order that changes would look like damage."""
    assert parse(original.to_json()).to_json() == original.to_json()


def test_a_file_has_one_entry_a_line():
    """Somebody will read it with `cat` at night."""
    mounts = tuple(Mount(host_path=f"/h{i}", container_path=f"/c{i}", options=("ro",)) for i in range(3))
    lines = spec(common=ContainerEdits(mounts=mounts)).to_json().decode().splitlines()
    assert sum(line.startswith('{"hostPath"') for line in lines) == 3


def test_unknown_fields_of_another_version_are_passed_over():
    document = json.loads(spec().to_json())
    document["annotations"] = {"a": "b"}
    document["devices"][0]["containerEdits"]["netDevices"] = [{"hostInterfaceName": "eth0"}]
    assert parse(json.dumps(document).encode()) == spec()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"cdiVersion: 0.5.0\nkind: k8s.gpu.nvidia.com/claim\n",
        b"[]",
        b"null",
        b'{"kind": 3}',
        spec().to_json()[:-40],
        b"[" * 100_000,
    ],
    ids=["empty", "cut", "yaml", "list", "null", "wrong-type", "truncated", "deep"],
)
def test_a_damaged_or_foreign_file_is_broken_with_a_reason(content):
    with pytest.raises(Broken, match=r"CDI spec"):
        parse(content)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
    )
)
def test_no_content_whatever_raises_anything_but_broken(document):
    with pytest.raises(Broken):
        parse(json.dumps(document).encode())


@given(specs(), st.data())
def test_a_field_of_any_wrong_type_raises_nothing_but_broken(original, data):
    """A file on disk may hold anything; the reader must never take the plugin down."""
    document = json.loads(original.to_json())
    target = document["devices"][0]["containerEdits"]
    key = data.draw(st.sampled_from(sorted(target)))
    target[key] = data.draw(st.none() | st.integers() | st.text() | st.lists(st.integers() | st.none() | st.text()))
    try:
        parse(json.dumps(document).encode())
    except Broken as error:
        assert "CDI spec" in str(error)  # noqa: PT017 - a value that happens to be valid is fine too
