"""The machine the plugin works on: the real one through NVML, or a simulated one for a try without GPUs.

The only place that chooses between the two; everything above sees the same ports.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpu_dra.cdi.builder import CdiBuilder
from gpu_dra.cdi.writer import SpecDirectory
from gpu_dra.hardware.discovery import Discovery
from gpu_dra.hardware.driver_root import find_library
from gpu_dra.hardware.fake import FakeNvml
from gpu_dra.hardware.pynvml_adapter import PynvmlAdapter
from gpu_dra.hardware.simulated import simulated_machine
from gpu_dra.node.simulated_cdi import SimulatedCdiBuilder

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpu_dra.claims.ports import SpecBuilder
    from gpu_dra.core.clock import Clock
    from gpu_dra.node.settings import NodeSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What the node's other parts work with."""

    discovery: Discovery
    builder: SpecBuilder
    specs: SpecDirectory


def open_machine(settings: NodeSettings, *, clock: Clock, lent: Callable[[], bool]) -> Machine:
    """Nothing is asked of the hardware yet; `lent` as in `Discovery`. Raises Refused for an unknown simulation."""
    specs = SpecDirectory(settings.cdi_root)
    if settings.simulate:
        simulated = FakeNvml(simulated_machine(settings.simulate), seed=settings.node_name)
        return Machine(
            discovery=Discovery(simulated, settings.host, clock=clock, lent=lent), builder=SimulatedCdiBuilder(), specs=specs
        )
    root = settings.host.driver_root
    real = PynvmlAdapter(lambda: find_library(root, "libnvidia-ml.so.1", on_host=settings.host.host_driver_root))
    return Machine(discovery=Discovery(real, settings.host, clock=clock, lent=lent), builder=CdiBuilder(settings.host), specs=specs)
