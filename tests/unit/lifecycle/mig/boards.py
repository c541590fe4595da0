"""Boards as NVML tells them, from the shipped simulation."""

from gpu_dra.hardware.fake import FakeNvml
from gpu_dra.hardware.host import HostPaths
from gpu_dra.hardware.simulated import simulated_machine
from gpu_dra.lifecycle.mig.hardware import read_board

H100, A100, T4 = "h100x8", "a100x8", "t4x1"
PCI_IDS = {H100: "0x233010de", A100: "0x20b010de", T4: "0x1eb810de"}


def board(machine, index, *, change=lambda gpu: None):
    """The board at an index, with what its driver tells; the PCI id is what the bus would say."""
    from dataclasses import replace

    nvml = FakeNvml(simulated_machine(machine))
    nvml.open()
    change(nvml.gpus[0])
    return replace(read_board(nvml, HostPaths(), 0), index=index, minor=index, pci_id=PCI_IDS[machine])
