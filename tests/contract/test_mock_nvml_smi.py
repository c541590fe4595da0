"""nvidia-smi of the mocked machine: what it shows where, and its exit codes."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from typing import TYPE_CHECKING, TypeAlias

import pytest

from hack.testbed.mock_nvml import MockNvml, build
from hack.testbed.profiles import load_machine
from tests.support.mocked_nvml import power_up, smi

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


Smi: TypeAlias = "Callable[..., subprocess.CompletedProcess[str]]"
H100 = load_machine("h100x8")
NO_DRIVER, MISMATCH, NOT_FOUND, LOST, NO_PERMISSION, BAD_ARGUMENT = 9, 18, 6, 15, 4, 2


@pytest.fixture
def mock(tmp_path: Path) -> MockNvml:
    return power_up(tmp_path, "h100x8")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A container's view: control node, GPUs 1 and 2; files stand in for device nodes."""
    dev = tmp_path / "root" / "dev"
    (dev / "nvidia-caps").mkdir(parents=True)
    for name in ("nvidiactl", "nvidia1", "nvidia2"):
        (dev / name).touch()
    return tmp_path / "root"


@pytest.fixture
def run(mock: MockNvml, root: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    return lambda *arguments: smi(mock, *arguments, root=root)


def gives(root: Path, *names: str) -> None:
    for name in names:
        (root / "dev" / name).touch()


def test_a_container_sees_the_gpus_whose_nodes_it_has_numbered_from_0(run: Smi) -> None:
    assert run("-L").stdout.splitlines() == [
        f"GPU {number}: NVIDIA H100 80GB HBM3 (UUID: {H100.gpus[index].uuid})" for number, index in ((0, 1), (1, 2))
    ]


def test_a_container_sees_the_partitions_whose_capability_nodes_it_has(mock: MockNvml, root: Path, run: Smi) -> None:
    mock.mig_mode(1, enabled=True)
    for start in (0, 1):
        mock.partition(1, 19, start=start)
    assert "MIG" not in run("-L").stdout
    instance = next(i for i in mock.show()["gpus"][1]["gpu_instances"] if i["start"] == 1)
    compute = instance["compute_instances"][0]
    gives(root, f"nvidia-caps/nvidia-cap{instance['capability_minor']}")
    assert "MIG" not in run("-L").stdout, "the GPU instance alone is no device"
    gives(root, f"nvidia-caps/nvidia-cap{compute['capability_minor']}")
    assert run("-L").stdout.splitlines()[1] == f"  MIG 1g.10gb     Device  0: (UUID: {compute['uuid']})"


def test_a_node_that_permissions_keep_shut_is_no_access(mock: MockNvml, root: Path) -> None:
    """A device file may be there and not be ours to use; the device cgroup refuses in the same way."""
    (root / "dev" / "nvidia1").chmod(0)
    without_privileges = ("setpriv", "--bounding-set=-all", "--inh-caps=-all") if os.geteuid() == 0 else ()
    listed = smi(mock, "-L", root=root, before=without_privileges).stdout
    assert [gpu.uuid in listed for gpu in H100.gpus[1:3]] == [False, True]


@pytest.mark.parametrize(
    ("happens", "status", "words"),
    [
        (lambda mock, root: (root / "dev" / "nvidiactl").unlink(), NO_DRIVER, "couldn't communicate with the NVIDIA driver"),
        (lambda mock, root: mock.driver_loaded(loaded=False), NO_DRIVER, "couldn't communicate with the NVIDIA driver"),
        (
            lambda mock, root: mock.kernel_version("590.10"),
            MISMATCH,
            "Driver/library version mismatch\nNVML library version: 580.105",
        ),
        (lambda mock, root: [(root / "dev" / f"nvidia{n}").unlink() for n in (1, 2)], NOT_FOUND, "No devices were found"),
        (lambda mock, root: mock.fault("nvmlInitWithFlags", error=999), 231, "Failed to initialize NVML: Unknown Error"),
    ],
)
def test_what_stands_in_the_way_is_told_with_the_real_exit_code(
    mock: MockNvml, root: Path, run: Smi, happens: Callable[..., object], status: int, words: str
) -> None:
    happens(mock, root)
    done = run("-L")
    assert (done.returncode, words in done.stdout) == (status, True), done.stdout


def test_without_being_told_the_library_finds_the_machine_beside_itself(tmp_path: Path, root: Path) -> None:
    """In a container nobody sets a variable: the state comes by the mounts of `*.so.<driver version>`, the library by its SONAME link."""
    directory, built, version = tmp_path / "lib", build(), H100.driver_version
    directory.mkdir()
    shutil.copy(built.library, directory / f"libnvidia-ml.so.{version}")
    (directory / "libnvidia-ml.so.1").symlink_to(f"libnvidia-ml.so.{version}")
    MockNvml.create(directory / f"libnvidia-mockstate.so.{version}", H100, built, host_tree=tmp_path)
    environment = {"LD_LIBRARY_PATH": str(directory), "MOCK_NVML_ROOT": str(root)}
    done = subprocess.run([built.nvidia_smi, "-L"], env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.count("NVIDIA H100")) == (0, 2)


def test_versions_of_library_and_driver_are_shown(run: Smi) -> None:
    assert run("--version").stdout.splitlines() == [
        "NVIDIA-SMI version  : 580.105.08",
        "NVML version        : 580.105",
        "DRIVER version      : 580.105.08",
        "CUDA Version        : 13.0",
    ]


def test_the_query_tells_the_basics_of_one_gpu(run: Smi) -> None:
    lines = dict(re.findall(r"^ *(\S[^:\n]*?) +: (.*)$", run("-q", "-i", H100.gpus[2].uuid).stdout, re.MULTILINE))
    assert lines["Product Name"] == "NVIDIA H100 80GB HBM3"
    assert (lines["GPU UUID"], lines["Minor Number"], lines["Total"]) == (H100.gpus[2].uuid, "2", "81559 MiB")


@pytest.mark.parametrize("spelling", ["1", H100.gpus[2].uuid, "00000000:52:00.0", "0000:52:00.0"])
def test_settings_reach_the_gpu_that_is_named(mock: MockNvml, run: Smi, spelling: str) -> None:
    assert run("compute-policy", "-i", spelling, "--set-timeslice", "3").returncode == 0
    assert run("-i", spelling, "-c", "EXCLUSIVE_PROCESS").returncode == 0
    shown = mock.show()["gpus"]
    assert [(gpu["timeslice"], gpu["compute_mode"]) for gpu in shown[1:4]] == [(0, 0), (3, 3), (0, 0)]
    assert re.search(r"Long$", run("compute-policy", "-i", spelling, "--list").stdout, re.MULTILINE)


def test_a_setting_that_the_driver_refuses_ends_in_the_drivers_code(mock: MockNvml, run: Smi) -> None:
    mock.fault("mockNvmlDeviceSetTimeslice", error=3)
    done = run("compute-policy", "-i", "0", "--set-timeslice=1")
    assert (done.returncode, "Not Supported" in done.stdout) == (3, True)


@pytest.mark.parametrize(
    "arguments", [("--nonsense",), ("-c",), ("compute-policy", "--set-timeslice"), ("-i", "0", "-c", "SOMETIMES")]
)
def test_a_wrong_argument_ends_in_2(run: Smi, arguments: tuple[str, ...]) -> None:
    assert run(*arguments).returncode == BAD_ARGUMENT


def test_an_unknown_gpu_ends_in_6(run: Smi) -> None:
    assert run("-i", "7", "-L").returncode == NOT_FOUND


@pytest.fixture
def node(root: Path) -> Path:
    """The mocked node itself: marked, with majors, and nothing in /dev yet."""
    for path in (root / "dev").glob("nvidia?*"):
        if path.is_file():
            path.unlink()
    proc = root / "proc" / "driver" / "nvidia"
    proc.mkdir(parents=True)
    (proc / ".mock-host").touch()
    majors = "Character devices:\n  1 mem\n195 nvidia\n235 nvidia-caps\n508 nvidia-uvm\n\nBlock devices:\n  8 sd\n"
    (root / "proc" / "devices").write_text(majors)
    return root


def test_on_the_node_everything_is_listed_and_missing_nodes_are_made(mock: MockNvml, node: Path) -> None:
    mock.mig_mode(7, enabled=True)
    mock.partition(7, 0)
    listed = smi(mock, "-L", root=node).stdout
    assert [gpu.uuid in listed for gpu in H100.gpus] == [True] * 8
    assert "  MIG 7g.80gb     Device  0:" in listed
    numbers = {path.name: path.stat().st_rdev for path in (node / "dev").rglob("nvidia*") if path.is_char_device()}
    assert numbers["nvidiactl"] == os.makedev(195, 255)
    assert numbers["nvidia7"] == os.makedev(195, 7)
    assert numbers["nvidia-uvm-tools"] == os.makedev(508, 1)
    assert numbers[f"nvidia-cap{3 + 135 * 7}"] == os.makedev(235, 3 + 135 * 7)


def test_on_the_node_a_lost_gpu_is_told_and_the_others_are_listed(mock: MockNvml, node: Path) -> None:
    mock.lose(3)
    done = smi(mock, "-L", root=node)
    assert done.returncode == LOST
    assert "Unable to determine the device handle for GPU3: GPU is lost" in done.stdout
    assert H100.gpus[4].uuid in done.stdout


def test_through_a_read_only_mount_the_machine_can_be_seen_and_not_changed(mock: MockNvml, root: Path) -> None:
    """Containers get the driver's files read-only; the state is one of them and must still be live there."""
    user_namespace = () if os.geteuid() == 0 else ("--map-root-user",)
    script = 'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && shift 0 && exec "$@"'
    inside = ("unshare", "--mount", *user_namespace, "sh", "-c", script, str(mock.state))
    assert smi(mock, "-L", root=root, before=inside).stdout.count("UUID") == 2
    done = smi(mock, "-i", "0", "-c", "PROHIBITED", root=root, before=inside)
    assert (done.returncode, "Insufficient Permissions" in done.stdout) == (NO_PERMISSION, True)
