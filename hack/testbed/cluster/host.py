"""The machine that a node plays: lay the mocked host and power up the mocked GPUs, before the node's first process runs."""

from __future__ import annotations

from pathlib import Path

from hack.testbed.cluster.cache import cache_folder
from hack.testbed.cluster.errors import Say
from hack.testbed.cluster.spec import NodeSpec
from hack.testbed.driver_files import DriverPrograms
from hack.testbed.mock_host import DRIVER_ROOT, cdi_hook_program, lay
from hack.testbed.profiles import load_machine

PRODUCT_FLAGS = ("--nvidia-driver-root", str(DRIVER_ROOT))
"""What the product needs to be told on a node with a profile; `/proc`, `/sys` and `/dev` are the mocked ones there."""


def boot(node: NodeSpec, *, lab: str, into: Path, say: Say) -> Path | None:
    """Lay the host as it is after a boot and return its folder; None for a node without a profile. Raises LabError."""
    if node.profile is None:
        return None
    from hack.testbed import mock_nvml  # noqa: PLC0415

    built = mock_nvml.build()
    hook = cdi_hook_program(cache_folder(), say=say) if node.hook else None
    machine = load_machine(node.profile, seed=f"{lab}/{node.name}")
    lay(machine, into, programs=DriverPrograms(nvml_library=built.library, nvidia_smi=built.nvidia_smi, cdi_hook=hook))
    return into
