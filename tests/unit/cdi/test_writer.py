"""The CDI directory: what is written, what is left alone, and what a person reads when it cannot be used."""

import re
from pathlib import Path

import pytest

from gpu_dra.cdi.spec import ContainerEdits, Device, DeviceNode, Spec
from gpu_dra.cdi.writer import SpecDirectory
from gpu_dra.core.errors import Broken, NotReady, Refused

UID = "0f7d3c1e-5b0a-4b53-9a5e-2f1f5f6b7a10"
NAME = f"k8s.gpu.nvidia.com-claim_{UID}.yaml"


def spec(uid=UID, kind="k8s.gpu.nvidia.com/claim"):
    edits = ContainerEdits(device_nodes=(DeviceNode(path="/dev/nvidia0", major=195, minor=0),))
    return Spec(kind=kind, devices=(Device(name=f"{uid}-gpu-0", edits=edits),), edits=ContainerEdits())


def names(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


@pytest.fixture
def directory(tmp_path: Path) -> SpecDirectory:
    return SpecDirectory(tmp_path)


def test_a_claim_has_one_file_with_the_name_of_nvidias_driver(directory, tmp_path):
    """Under another name, a file NVIDIA's driver left behind would make the device ambiguous, hence unusable."""
    directory.write(UID, spec())
    assert names(tmp_path) == {NAME}
    assert (tmp_path / NAME).stat().st_mode & 0o777 == 0o644
    assert directory.read(UID) == spec()


def test_writing_removes_a_twin_of_another_ending(directory, tmp_path):
    twin = (tmp_path / NAME).with_suffix(".json")
    twin.write_text("{}")
    directory.write(UID, spec())
    assert not twin.exists()


def test_removing_takes_the_file_and_its_twin_and_can_be_repeated(directory, tmp_path):
    directory.write(UID, spec())
    (tmp_path / NAME).with_suffix(".json").write_text("{}")
    assert directory.remove(UID) is True
    assert directory.remove(UID) is False
    assert names(tmp_path) == set()


def test_files_of_others_are_neither_listed_nor_touched(directory, tmp_path):
    others = [
        "nvidia.yaml",
        "k8s.gpu.nvidia.com-claim_.yaml",
        "k8s.compute-domain.nvidia.com-claim_1.yaml",
        f".{NAME}.0a1b2c3d.tmp",
    ]
    for name in others:
        (tmp_path / name).write_text("not ours")
    directory.write(UID, spec())
    assert directory.uids() == {UID}
    directory.remove(UID)
    assert names(tmp_path) == set(others)


@pytest.mark.parametrize("damage", ["", "cdiVersion: 0.5.0\n", '{"kind": "k8s.gpu'], ids=["empty", "yaml", "cut"])
def test_a_damaged_file_is_listed_named_and_not_intact(directory, tmp_path, damage):
    """A file cut by a power failure, or one that NVIDIA's driver wrote as YAML: its claim can be prepared again."""
    (tmp_path / NAME).write_text(damage)
    assert directory.uids() == {UID}
    assert not directory.exists_intact(UID)
    with pytest.raises(Broken, match=NAME):
        directory.read(UID)


def test_only_a_whole_file_for_this_claim_without_a_twin_is_intact(directory, tmp_path):
    assert not directory.exists_intact(UID)
    directory.write(UID, spec())
    assert directory.exists_intact(UID)
    (tmp_path / NAME).with_suffix(".json").write_text("{}")
    assert not directory.exists_intact(UID)


@pytest.mark.parametrize("content", [spec(uid="other"), spec(kind="nvidia.com/gpu")], ids=["other-claim", "other-kind"])
def test_a_file_with_devices_of_something_else_is_not_intact(directory, content):
    directory.write(UID, content)
    assert not directory.exists_intact(UID)


def test_a_claim_without_a_file_reads_as_nothing(directory):
    assert directory.read(UID) is None


@pytest.mark.parametrize("uid", ["", "..", "../../etc/cron.d/x", "a/b", "a\0b", "x" * 200])
def test_a_uid_that_is_no_file_name_is_refused(directory, uid):
    """The kubelet sends UUIDs; whoever else reaches the socket must not write where he likes."""
    with pytest.raises(Refused, match="cannot be part of a file name"):
        directory.write(uid, spec())


def test_a_missing_directory_is_said_with_its_path_and_flag(tmp_path):
    missing = tmp_path / "gone"
    with pytest.raises(NotReady, match=rf"{re.escape(str(missing))}: it does not exist.*--cdi-root"):
        SpecDirectory(missing).write(UID, spec())


def test_a_file_in_the_directorys_place_is_said_with_its_path_and_flag(tmp_path):
    file = tmp_path / "cdi"
    file.write_text("")
    with pytest.raises(NotReady, match=rf"{re.escape(str(file))}: it is not a directory.*--cdi-root"):
        SpecDirectory(file).uids()


def test_a_read_only_directory_is_said_with_the_way_out():
    """The kernel's sysfs takes no files, not even from root."""
    with pytest.raises(NotReady, match=r"cannot write CDI directory /sys/kernel: .*--cdi-root"):
        SpecDirectory(Path("/sys/kernel")).write(UID, spec())
