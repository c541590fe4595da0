"""How a machine is read: cgroup trees, mount table, firewall, package signs, versions."""

from __future__ import annotations

from pathlib import Path

import pytest

from hack.testbed.cluster.cgroups import Hierarchy, hierarchies, make_in, version
from hack.testbed.cluster.errors import LabError
from hack.testbed.cluster.go_toolchain import needed_version, parse_version
from hack.testbed.cluster.network import has_firewall
from hack.testbed.cluster.packages import Package, cannot_install, ensure_packages
from hack.testbed.cluster.place import check_place, file_system_of

VERSION_1 = """\
30 24 0:26 / /sys/fs/cgroup rw shared:9 - tmpfs tmpfs ro,mode=755
31 30 0:27 / /sys/fs/cgroup/memory rw shared:10 - cgroup cgroup rw,memory
32 30 0:28 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
33 30 0:29 / /mnt/cgroup rw - cgroup2 cgroup2 rw
"""
VERSION_2 = "31 30 0:27 / /sys/fs/cgroup rw shared:10 - cgroup2 cgroup2 rw,nsdelegate\n"
MOUNTS = """\
22 1 254:0 / / rw - ext4 /dev/vda rw
40 22 0:40 / /var/tmp rw - overlay overlay rw
41 22 0:41 / /var/tmp rw - tmpfs tmpfs rw
42 22 0:42 / /home/me rw - fuse.sshfs me@host rw
"""


def test_only_trees_below_the_usual_place_are_taken() -> None:
    assert hierarchies(VERSION_1) == [
        Hierarchy(path=Path("/sys/fs/cgroup/memory"), version=1),
        Hierarchy(path=Path("/sys/fs/cgroup/unified"), version=2),
    ]


def test_the_hybrid_layout_counts_as_version_1() -> None:
    """The kubelet sees it so: its controllers are in version 1 trees."""
    assert version(hierarchies(VERSION_1)) == 1
    assert version(hierarchies(VERSION_2)) == 2


def test_a_machine_without_cgroups_is_told_so() -> None:
    with pytest.raises(LabError, match="no cgroup file system"):
        version([])


def test_a_version_2_group_hands_down_what_the_kubelet_asks_for_and_the_machine_has(tmp_path: Path) -> None:
    (tmp_path / "cgroup.controllers").write_text("cpu io memory hugetlb\n")
    make_in(tmp_path, ("gpu-dra", "demo"), unified=True)
    assert (tmp_path / "cgroup.subtree_control").read_text() == "+cpu +hugetlb +memory"
    assert (tmp_path / "gpu-dra/cgroup.subtree_control").read_text() == "+cpu +hugetlb +memory"
    assert not (tmp_path / "gpu-dra/demo/cgroup.subtree_control").exists()


def test_a_lab_may_not_lie_where_its_nodes_do_not_see_it() -> None:
    with pytest.raises(LabError, match="have a /run of their own"):
        check_place(Path("/run/labs"), MOUNTS)


def test_a_lab_may_not_lie_on_a_file_system_that_cannot_hold_containers() -> None:
    with pytest.raises(LabError, match=r"fuse\.sshfs; set GPU_DRA_LABS"):
        check_place(Path("/home/me/labs"), MOUNTS)


def test_a_folder_that_mount_options_cannot_name_is_refused() -> None:
    with pytest.raises(LabError, match="no blank, colon, comma or backslash"):
        check_place(Path("/var/tmp/my labs"), MOUNTS)


def test_the_last_mount_on_a_place_is_the_one_that_counts() -> None:
    assert file_system_of(Path("/var/tmp/labs"), MOUNTS) == "tmpfs"
    assert file_system_of(Path("/var/lib"), MOUNTS) == "ext4"


def test_a_machine_that_lets_everything_through_needs_no_rules_from_us() -> None:
    assert not has_firewall([])
    assert not has_firewall(["*filter", ":INPUT ACCEPT [0:0]", ":FORWARD ACCEPT [0:0]", "COMMIT"])


@pytest.mark.parametrize("line", [":FORWARD DROP [0:0]", "-A INPUT -i eth0 -j DROP"])
def test_a_policy_or_a_rule_is_a_firewall(line: str) -> None:
    assert has_firewall(["*filter", line])


def test_a_package_is_there_when_all_that_shows_it_is(tmp_path: Path) -> None:
    assert Package(name="any", shown_by=("mount", str(tmp_path))).present()
    assert not Package(name="any", shown_by=("mount", str(tmp_path / "missing"))).present()


def test_what_is_there_needs_no_installation() -> None:
    ensure_packages((Package(name="no-such-package", shown_by=("mount",)),), say=print)


def test_missing_packages_are_named_exactly_where_they_cannot_be_installed() -> None:
    assert cannot_install(["iptables", "conntrack"], apt=True).endswith(
        "needs root; install these (Debian's names) and try again: iptables conntrack"
    )


def test_go_versions_are_read_from_both_places_they_come_from() -> None:
    assert parse_version("module x\n\ngo 1.26.0\n\ntoolchain go1.27.1\n") == (1, 26, 0)
    assert parse_version("go version go1.26.8 linux/amd64") == (1, 26, 8)


def test_the_newest_module_decides_which_go_is_needed(tmp_path: Path) -> None:
    for name, line in (("a", "go 1.9"), ("b", "go 1.26.6"), ("c", "go 1.26")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "go.mod").write_text(f"module {name}\n\n{line}\n")
    assert needed_version(tmp_path) == (1, 26, 6)
