"""A simulated H100 machine and an empty host."""

from __future__ import annotations

import pytest

from gpu_dra.core.clock import FakeClock
from gpu_dra.hardware.fake import FakeNvml
from gpu_dra.hardware.host import HostPaths
from gpu_dra.hardware.simulated import simulated_machine


@pytest.fixture
def nvml():
    return FakeNvml(simulated_machine("h100x8"))


@pytest.fixture
def host(tmp_path):
    return HostPaths(proc=tmp_path / "proc", sys=tmp_path / "sys", dev=tmp_path / "dev", driver_root=tmp_path)


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def pci_device(host):
    """Make a PCI function in the host's sysfs, bound to the nvidia driver unless told otherwise."""

    def make(address, *, root="pci0000:15", numa=0, bound=True):
        device = host.sys / "devices" / root / address
        device.mkdir(parents=True)
        for name, content in {"vendor": "0x10de", "class": "0x030200", "numa_node": str(numa)}.items():
            (device / name).write_text(f"{content}\n")
        for directory in ("bus/pci/devices", *(["bus/pci/drivers/nvidia"] if bound else [])):
            (host.sys / directory).mkdir(parents=True, exist_ok=True)
            (host.sys / directory / address).symlink_to(device)

    return make
