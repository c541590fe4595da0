"""A tree that is put in place is the machine, for one mount namespace and nobody else. Needs root, as the local cluster does."""

from __future__ import annotations

import json
import platform
import stat
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from hack.testbed.cluster.errors import LabError
from hack.testbed.driver_files import DriverPrograms
from hack.testbed.elf_stub import architecture, program, shared_object
from hack.testbed.mock_host import HostTree, lay
from hack.testbed.profiles import load_machine

CHECKOUT = Path(__file__).resolve().parents[3]
OBSERVE = textwrap.dedent("""
    import json, os, sys
    from pathlib import Path
    from hack.testbed.mock_host import HostTree

    tree, driver_root = HostTree.open(Path(sys.argv[1])), Path(sys.argv[2])
    tree.apply(driver_root=driver_root)
    tree.apply(driver_root=driver_root)
    gpu = Path("/sys/bus/pci/devices/0000:1b:00.0")
    Path("/dev/made-by-the-node").touch()
    Path("/dev/null").write_text("the machine's own nodes work")
    print(json.dumps({
        "version": Path("/proc/driver/nvidia/version").read_text(),
        "majors": Path("/proc/devices").read_text(),
        "module": Path("/sys/module/nvidia/version").read_text().strip(),
        "gpu": str(gpu.resolve()),
        "vendor": (gpu / "vendor").read_text().strip(),
        "node": [os.major(os.stat("/dev/nvidia7").st_rdev), os.minor(os.stat("/dev/nvidia7").st_rdev)],
        "real": [Path("/sys/class/net/lo/mtu").exists(), Path("/sys/devices/system/cpu").exists(), Path("/dev/pts/ptmx").exists()],
        "driver": sorted(path.name for path in driver_root.iterdir()),
        "mounts": len(Path("/proc/self/mountinfo").read_text().splitlines()),
    }))
""")


@pytest.fixture
def tree(tmp_path: Path) -> HostTree:
    """An h100x8 with true device nodes."""
    here = architecture(platform.machine())
    library, tool = tmp_path / "libnvidia-ml.so", tmp_path / "tool"
    library.write_bytes(shared_object("libnvidia-ml.so.1", here))
    tool.write_bytes(program(here))
    programs = DriverPrograms(nvml_library=library, nvidia_smi=tool, cdi_hook=None)
    return lay(load_machine("h100x8"), tmp_path / "host", programs=programs)


def observe(tree: HostTree, *, propagation: str = "private") -> subprocess.CompletedProcess[str]:
    command = ["unshare", "--mount", "--propagation", propagation, sys.executable, "-c", OBSERVE]
    arguments = [str(tree.directory), str(tree.directory.parent / "driver")]
    return subprocess.run([*command, *arguments], cwd=CHECKOUT, capture_output=True, text=True, check=False, timeout=30)


def test_default_paths_show_the_mocked_machine_and_keep_the_real_one_working(tree: HostTree) -> None:
    result = observe(tree)

    seen = json.loads(result.stdout or result.stderr)
    assert "580.105.08" in seen["version"]
    assert "195 nvidia\n" in seen["majors"]
    assert seen["module"] == "580.105.08"
    assert seen["gpu"] == "/sys/devices/pci0000:15/0000:15:01.0/0000:1b:00.0"
    assert seen["vendor"] == "0x10de"
    assert seen["node"] == [195, 7]
    assert seen["real"] == [True, True, True]
    assert "usr" in seen["driver"]


def test_the_machine_outside_the_namespace_is_left_alone(tree: HostTree) -> None:
    before = Path("/proc/self/mountinfo").read_text()

    result = observe(tree)

    assert result.returncode == 0, result.stderr
    assert Path("/proc/self/mountinfo").read_text() == before
    assert not Path("/dev/made-by-the-node").exists()
    assert (tree.dev / "made-by-the-node").exists()


def test_a_node_that_restarts_can_have_its_machine_again(tree: HostTree) -> None:
    """The mount points of the last time still lie in the tree."""
    first, second = observe(tree), observe(tree)

    assert json.loads(first.stdout)["mounts"] == json.loads(second.stdout)["mounts"]


def test_mounts_that_others_would_see_are_refused(tree: HostTree) -> None:
    result = observe(tree, propagation="shared")

    assert result.returncode != 0
    assert "are shared with other mount namespaces" in result.stderr
    assert "unshare --mount --propagation private" in result.stderr


def test_device_nodes_have_the_modes_of_the_driver(tree: HostTree) -> None:
    modes = {name: (tree.dev / name).stat().st_mode for name in ("nvidia0", "nvidia-caps/nvidia-cap1", "nvidia-caps/nvidia-cap2")}

    assert all(stat.S_ISCHR(mode) for mode in modes.values())
    assert [stat.S_IMODE(mode) for mode in modes.values()] == [0o666, 0o400, 0o444]


def test_a_tree_that_only_lies_there_is_not_in_place(tree: HostTree) -> None:
    assert not tree.is_applied()


def test_a_failing_mount_names_the_command(tree: HostTree) -> None:
    (tree.proc / "devices").unlink()

    result = observe(tree)

    assert LabError.__name__ in result.stderr
    assert "/proc/devices` failed" in result.stderr
