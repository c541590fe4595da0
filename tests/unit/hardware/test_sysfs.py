"""PCI facts come from sysfs, and a tree that lacks one costs that fact only."""

from __future__ import annotations

from gpu_dra.hardware import sysfs
from gpu_dra.model.pci import PciAddress

GPU = PciAddress.parse("0000:1b:00.0")


def test_gpus_are_told_from_other_nvidia_functions_and_other_vendors(host, pci_device):
    """An NVIDIA audio function or an NVSwitch is no GPU, and neither is another vendor's card."""
    pci_device("0000:1b:00.0", bound=False)
    pci_device("0000:1b:00.1", bound=False)
    pci_device("0000:02:00.0", bound=False)
    (host.sys / "bus/pci/devices/0000:1b:00.1/class").write_text("0x040300\n")
    (host.sys / "bus/pci/devices/0000:02:00.0/vendor").write_text("0x1002\n")
    assert sysfs.nvidia_gpus(host) == (GPU,)


def test_bound_gpus_stand_among_other_files_of_the_driver(host, pci_device):
    pci_device("0000:1b:00.0")
    pci_device("0000:43:00.0", bound=False)
    (host.sys / "bus/pci/drivers/nvidia/bind").write_text("")
    assert sysfs.bound_gpus(host) == (GPU,)


def test_the_root_complex_is_the_first_one_above_the_gpu(host, pci_device):
    pci_device("0000:1b:00.0", root="pci0000:15/0000:15:01.0/0000:16:00.0")
    assert sysfs.pcie_root(host, GPU) == "pci0000:15"


def test_a_gpu_behind_a_hypervisors_bus_has_no_root_complex(host, pci_device):
    pci_device("0000:1b:00.0", root="LNXSYSTM:00/VMBUS:01")
    assert sysfs.pcie_root(host, GPU) is None


def test_a_gpu_that_sysfs_does_not_show_has_no_facts(host):
    assert sysfs.nvidia_gpus(host) == ()
    assert sysfs.bound_gpus(host) == ()
    assert sysfs.pcie_root(host, GPU) is None
    assert sysfs.numa_node(host, GPU) is None
    assert sysfs.drm_devices(host, GPU) == ()


def test_drm_nodes_are_those_with_a_device_number(host, pci_device):
    pci_device("0000:1b:00.0")
    drm = host.sys / "bus/pci/devices/0000:1b:00.0/drm"
    for name, number in {"card1": "226:1", "renderD128": "226:128"}.items():
        (drm / name).mkdir(parents=True)
        (drm / name / "dev").write_text(f"{number}\n")
    (drm / "by-connector").mkdir()
    assert sysfs.drm_devices(host, GPU) == (
        sysfs.DrmDevice(name="card1", major=226, minor=1),
        sysfs.DrmDevice(name="renderD128", major=226, minor=128),
    )
