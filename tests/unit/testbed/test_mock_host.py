"""A laid tree reads as a machine with an NVIDIA driver does, checked through the readers of the product."""

from __future__ import annotations

import platform
import stat
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from gpu_dra.hardware import elf, ldcache, procfs, sysfs
from gpu_dra.hardware.driver_root import find_library
from gpu_dra.hardware.host import HostPaths
from gpu_dra.model.pci import PciAddress
from hack.testbed.cluster.errors import LabError
from hack.testbed.driver_files import DriverPrograms
from hack.testbed.elf_stub import architecture, program, shared_object
from hack.testbed.mock_host import HostTree, lay
from hack.testbed.profiles import load_machine, machine_names

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def programs(tmp_path: Path) -> DriverPrograms:
    """Stubs in place of the programs that have to be compiled."""
    here = architecture(platform.machine())
    library, tool = tmp_path / "libnvidia-ml.so", tmp_path / "tool"
    library.write_bytes(shared_object("libnvidia-ml.so.1", here))
    tool.write_bytes(program(here))
    return DriverPrograms(nvml_library=library, nvidia_smi=tool, cdi_hook=None)


@pytest.fixture
def lay_profile(tmp_path: Path, programs: DriverPrograms) -> Callable[[str], HostTree]:
    """Lay a profile by name, with files in place of device nodes."""
    return lambda name: lay(load_machine(name), tmp_path / "host", programs=programs, device_nodes=False)


def host_paths(tree: HostTree) -> HostPaths:
    return HostPaths(proc=tree.proc, sys=tree.sys, dev=tree.dev, driver_root=tree.driver_root)


def make_partition(tree: HostTree, name: str, minor: int) -> Path:
    """Show a partition the way the mocked library does."""
    file = tree.proc / "driver/nvidia/capabilities" / name / "access"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"DeviceFileMinor: {minor}\nDeviceFileMode: 292\nDeviceFileModify: 1\n")
    return file


@pytest.mark.parametrize("name", machine_names())
def test_every_gpu_of_a_profile_is_found_with_its_root_numa_node_and_minor(
    name: str, lay_profile: Callable[[str], HostTree]
) -> None:
    host = host_paths(lay_profile(name))

    found = {
        (str(pci), sysfs.pcie_root(host, pci), sysfs.numa_node(host, pci), procfs.device_minor(host, pci))
        for pci in sysfs.bound_gpus(host)
    }

    assert found == {
        (gpu.pci, gpu.pcie_root, gpu.numa_node if gpu.numa_node >= 0 else None, gpu.minor) for gpu in load_machine(name).gpus
    }


def test_the_driver_version_reads_the_same_everywhere(lay_profile: Callable[[str], HostTree]) -> None:
    tree = lay_profile("a100x8-p4d")

    assert procfs.driver_version(host_paths(tree)) == "580.126.09"
    assert (tree.sys / "module/nvidia/version").read_text() == "580.126.09\n"
    assert (tree.library_directory / "libcuda.so.580.126.09").is_file()


@pytest.mark.parametrize("kernel_module", ["open", "proprietary"])
@pytest.mark.parametrize("cpu_architecture", ["x86_64", "aarch64"])
def test_a_two_part_version_is_read_from_every_shape_of_the_version_file(
    kernel_module: str, cpu_architecture: str, tmp_path: Path, programs: DriverPrograms
) -> None:
    machine = replace(load_machine("t4x1"), kernel_module=kernel_module, cpu_architecture=cpu_architecture)

    tree = lay(machine, tmp_path / "host", programs=programs, driver_version="580.142", device_nodes=False)

    assert procfs.driver_version(host_paths(tree)) == "580.142"


def test_majors_are_those_of_the_profile_though_a_block_device_repeats_a_name(lay_profile: Callable[[str], HostTree]) -> None:
    majors = procfs.character_majors(host_paths(lay_profile("h100x8")))

    assert (majors["nvidia"], majors["nvidia-uvm"], majors["nvidia-caps"]) == (195, 508, 235)


def test_a_driver_before_550_40_calls_its_major_the_frontend(tmp_path: Path, programs: DriverPrograms) -> None:
    tree = lay(load_machine("t4x1"), tmp_path / "host", programs=programs, driver_version="535.309.01", device_nodes=False)

    majors = procfs.character_majors(host_paths(tree))

    assert majors["nvidia-frontend"] == 195
    assert "nvidia" not in majors


def test_capability_minors_are_numbered_for_every_gpu_that_could_exist(lay_profile: Callable[[str], HostTree]) -> None:
    """Gaps are real: a GPU instance takes nine minors and a GPU 135, whatever it holds."""
    lines = (lay_profile("h100x8").proc / "driver/nvidia-caps/mig-minors").read_text().splitlines()

    assert lines[:4] == ["config 1", "monitor 2", "gpu0/gi0/access 3", "gpu0/gi0/ci0/access 4"]
    assert "gpu1/gi0/access 138" in lines
    assert lines[-1] == "gpu31/gi14/ci7/access 4322"


def test_nvml_and_cuda_are_found_below_the_driver_root(lay_profile: Callable[[str], HostTree]) -> None:
    root = lay_profile("h100x8").driver_root

    assert elf.read(find_library(root, "libnvidia-ml.so.1")).soname == "libnvidia-ml.so.1"
    assert elf.read(find_library(root, "libcuda.so.1")).soname == "libcuda.so.1"


def test_every_library_with_an_interface_version_is_reachable_by_its_soname(lay_profile: Callable[[str], HostTree]) -> None:
    directory = lay_profile("h100x8").library_directory
    libraries = [path for path in directory.rglob("*.so.*") if not path.is_symlink()]

    assert len(libraries) >= 27
    for library in libraries:
        assert (library.parent / (elf.read(library).soname or "")).resolve() == library


def test_the_loader_cache_names_the_libraries_as_seen_from_the_driver_root(lay_profile: Callable[[str], HostTree]) -> None:
    tree = lay_profile("h100x8")
    directory = tree.library_directory.relative_to(tree.driver_root)

    entries = ldcache.parse((tree.driver_root / "etc/ld.so.cache").read_bytes())

    assert {f"/{directory}/libcuda.so.1", f"/{directory}/libGLX_nvidia.so.0"} <= {entry.path for entry in entries}


def test_device_files_stand_in_with_the_numbers_of_the_nodes(lay_profile: Callable[[str], HostTree]) -> None:
    dev = lay_profile("h100x8").dev

    numbers = {
        name: (dev / name).read_text().strip() for name in ("nvidia3", "nvidiactl", "nvidia-uvm-tools", "nvidia-caps/nvidia-cap1")
    }

    assert numbers == {
        "nvidia3": "c 195:3",
        "nvidiactl": "c 195:255",
        "nvidia-uvm-tools": "c 508:1",
        "nvidia-caps/nvidia-cap1": "c 235:1",
    }


def test_a_gpu_that_did_not_come_up_leaves_a_gap_in_the_device_minors(lay_profile: Callable[[str], HostTree]) -> None:
    dev = lay_profile("minor-gap").dev

    assert sorted(node.name for node in dev.glob("nvidia[0-9]*")) == [f"nvidia{minor}" for minor in (0, 1, 2, 4, 5, 6, 7)]


def test_a_fresh_boot_has_no_nvidia_node_yet(lay_profile: Callable[[str], HostTree]) -> None:
    assert list(lay_profile("fresh-boot").dev.glob("nvidia*")) == []


def test_a_machine_without_gpus_still_has_its_driver(lay_profile: Callable[[str], HostTree]) -> None:
    tree = lay_profile("nogpu")

    assert procfs.driver_version(host_paths(tree)) == "580.105.08"
    assert sysfs.nvidia_gpus(host_paths(tree)) == ()
    assert (tree.dev / "nvidiactl").exists()


def test_nodes_of_partitions_come_and_go_with_them(lay_profile: Callable[[str], HostTree]) -> None:
    tree = lay_profile("h100x8")
    make_partition(tree, "gpu0/mig/gi1", 12)
    compute_instance = make_partition(tree, "gpu0/mig/gi1/ci0", 13)
    tree.sync()
    both = sorted(node.name for node in (tree.dev / "nvidia-caps").iterdir())

    compute_instance.unlink()
    tree.sync()

    assert both == ["nvidia-cap1", "nvidia-cap12", "nvidia-cap13", "nvidia-cap2"]
    assert sorted(node.name for node in (tree.dev / "nvidia-caps").iterdir()) == ["nvidia-cap1", "nvidia-cap12", "nvidia-cap2"]


def test_the_product_reads_a_partitions_capability(lay_profile: Callable[[str], HostTree]) -> None:
    tree = lay_profile("h100x8")
    make_partition(tree, "gpu2/mig/gi1/ci0", 283)

    capability = procfs.mig_capability(host_paths(tree), gpu_minor=2, gpu_instance_id=1, compute_instance_id=0)

    assert capability is not None
    assert tree.partition_capabilities() == {capability.minor: 0o444}


def test_laying_again_forgets_partitions_and_old_files_but_not_the_machines_state(
    lay_profile: Callable[[str], HostTree], tmp_path: Path, programs: DriverPrograms
) -> None:
    """It is what a reboot into another driver does; what NVML remembers over it is the mocked library's business."""
    tree = lay_profile("h100x8")
    state = tree.library_directory / "libnvidia-mockstate.so.580.105.08"
    state.write_bytes(b"state")
    make_partition(tree, "gpu0/mig/gi1", 12)
    tree.sync()

    lay(load_machine("h100x8"), tree.directory, programs=programs, driver_version="595.91.07", device_nodes=False)

    assert state.read_bytes() == b"state"
    assert tree.partition_capabilities() == {}
    assert not (tree.dev / "nvidia-caps/nvidia-cap12").exists()
    assert not (tree.library_directory / "libcuda.so.580.105.08").exists()


def test_a_laid_tree_can_be_opened_by_another_process(lay_profile: Callable[[str], HostTree]) -> None:
    tree = lay_profile("a30x4")

    assert HostTree.open(tree.directory) == tree


def test_opening_a_directory_without_a_tree_says_how_to_lay_one(tmp_path: Path) -> None:
    with pytest.raises(LabError, match=r"holds no mock host.*mock-host lay"):
        HostTree.open(tmp_path)


def test_the_hook_is_there_only_when_asked_for(tmp_path: Path, programs: DriverPrograms) -> None:
    with_hook = replace(programs, cdi_hook=programs.nvidia_smi)

    plain = lay(load_machine("t4x1"), tmp_path / "plain", programs=programs, device_nodes=False)
    toolkit = lay(load_machine("t4x1"), tmp_path / "toolkit", programs=with_hook, device_nodes=False)

    assert not (plain.driver_root / "usr/bin/nvidia-cdi-hook").exists()
    assert stat.S_IMODE((toolkit.driver_root / "usr/bin/nvidia-cdi-hook").stat().st_mode) == 0o755


def test_the_persistence_daemons_socket_is_a_socket_however_long_the_path(tmp_path: Path, programs: DriverPrograms) -> None:
    tree = lay(load_machine("t4x1"), tmp_path / ("deep" * 30) / "host", programs=programs, device_nodes=False)

    assert (tree.driver_root / "run/nvidia-persistenced/socket").is_socket()


def test_pci_addresses_of_the_capture_survive_the_way_through_sysfs(lay_profile: Callable[[str], HostTree]) -> None:
    """GB300 uses PCI domains above 0."""
    assert PciAddress.parse("0018:06:00.0") in sysfs.nvidia_gpus(host_paths(lay_profile("gb300x4")))
