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
from hack.testbed.profiles import Machine, load_machine

PRODUCT_FLAGS = ("--nvidia-driver-root", str(DRIVER_ROOT))
"""What the product needs to be told on a node with a profile; `/proc`, `/sys` and `/dev` are the mocked ones there."""


def boot(node: NodeSpec, *, lab: str, into: Path, say: Say) -> Path | None:
    """Lay the host as it is after a boot and return its folder; None for a node without a profile. Raises LabError.

    The first boot powers up the machine as its profile describes it, partitions included; a later one keeps what hardware keeps.
    """
    if node.profile is None:
        return None
    built = mock_nvml.build(say=say)
    hook = cdi_hook_program(cache_folder(), say=say) if node.hook else None
    machine = load_machine(node.profile, seed=f"{lab}/{node.name}")
    tree = lay(machine, into, programs=DriverPrograms(nvml_library=built.library, nvidia_smi=built.nvidia_smi, cdi_hook=hook))
    _power_up(tree, machine, built)
    tree.sync()
    return into


def mock_of(tree: HostTree) -> MockNvml:
    """The mocked GPUs of a laid host, to steer them."""
    return MockNvml(state=state_of(tree), control=mock_nvml.build().control)


def _power_up(tree: HostTree, machine: Machine, built: mock_nvml.Built) -> None:
    if state_of(tree).exists():
        mock_of(tree).reboot()
    else:
        # The lab's folder has the same path on the machine and in its nodes, so partitions can be made from either.
        MockNvml.create(state_of(tree), machine, built, host_tree=tree.nvidia_proc)


def state_of(tree: HostTree) -> Path:
    """Where the mocked library looks: beside itself, by the driver's version."""
    return tree.library_directory / f"libnvidia-mockstate.so.{tree.driver_version}"
