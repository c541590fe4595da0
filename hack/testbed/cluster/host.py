"""The machine that a node plays: lay the mocked host and power up the mocked GPUs, before the node's first process runs."""

from __future__ import annotations

from pathlib import Path

from hack.testbed import mock_nvml
from hack.testbed.cluster.cache import cache_folder
from hack.testbed.cluster.errors import Say
from hack.testbed.cluster.spec import NodeSpec
from hack.testbed.driver_files import DriverPrograms
from hack.testbed.mock_host import DRIVER_ROOT, HostTree, cdi_hook_program, lay
from hack.testbed.mock_nvml import MockNvml
from hack.testbed.profiles import load_machine

PRODUCT_FLAGS = ("--nvidia-driver-root", str(DRIVER_ROOT))
"""What the product needs to be told on a node with a profile; `/proc`, `/sys` and `/dev` are the mocked ones there."""


def boot(node: NodeSpec, *, lab: str, into: Path, say: Say) -> Path | None:
    """Lay the host as it is after a boot and return its folder; None for a node without a profile. Raises LabError."""
    if node.profile is None:
        return None
    built = mock_nvml.build(say=say)
    hook = cdi_hook_program(cache_folder(), say=say) if node.hook else None
    machine = load_machine(node.profile, seed=f"{lab}/{node.name}")
    tree = lay(machine, into, programs=DriverPrograms(nvml_library=built.library, nvidia_smi=built.nvidia_smi, cdi_hook=hook))
    state = state_of(tree)
    if state.exists():
        MockNvml(state=state, control=built.control).reboot()
    else:
        MockNvml.create(state, machine, built, host_tree=tree.nvidia_proc)
    return into


def state_of(tree: HostTree) -> Path:
    """The mocked machine's file: named like a driver library and beside them, so it comes into containers as they do."""
    return tree.library_directory / f"libnvidia-mockstate.so.{tree.driver_version}"


def mock_of(folder: Path) -> MockNvml:
    """The mocked machine of a node that was booted from `folder`. Raises LabError."""
    return MockNvml(state=state_of(HostTree.open(folder)), control=mock_nvml.build().control)
