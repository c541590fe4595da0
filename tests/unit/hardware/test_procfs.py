"""What the kernel and the NVIDIA driver print below `/proc` is read in every shape it is known to have."""

from __future__ import annotations

import pytest

from gpu_dra.core.errors import Broken
from gpu_dra.hardware import procfs
from gpu_dra.model.pci import PciAddress

PROPRIETARY = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023\nGCC version:  gcc 12.3.0\n"
OPEN = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.142  Release Build  (dvs@builder)  Tue Jan  6 UTC 2026\n"
ARM = "NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  580.105.08  Release Build  (dvs@builder)  Wed Oct 29 UTC 2025\n"


@pytest.fixture
def proc(host):
    def write(path, text):
        (host.proc / path).parent.mkdir(parents=True, exist_ok=True)
        (host.proc / path).write_text(text)

    return write


@pytest.mark.parametrize(
    ("text", "version"), [(PROPRIETARY, "535.104.05"), (OPEN, "580.142"), (ARM, "580.105.08"), ("garbage\n", None)]
)
def test_the_module_version_is_found_in_every_wording(host, proc, text, version):
    proc("driver/nvidia/version", text)
    assert procfs.driver_version(host) == version


def test_without_a_driver_there_is_no_version(host):
    assert procfs.driver_version(host) is None


def test_the_minor_of_a_gpu_is_read_from_its_information(host, proc):
    proc("driver/nvidia/gpus/0000:1b:00.0/information", "Model: \t\t NVIDIA L4\nDevice Minor: \t 5\nGPU Excluded:\t No\n")
    assert procfs.device_minor(host, PciAddress.parse("0000:1b:00.0")) == 5
    assert procfs.device_minor(host, PciAddress.parse("0000:1c:00.0")) is None


def test_the_drivers_wish_for_its_nodes_is_printed_in_decimal(host, proc):
    proc("driver/nvidia/params", 'ModifyDeviceFiles: 0\nDeviceFileUID: 7\nDeviceFileGID: 44\nDeviceFileMode: 432\nRmMsg: ""\n')
    assert procfs.device_file_policy(host) == procfs.DeviceFilePolicy(modify=False, uid=7, gid=44, mode=0o660)


def test_without_parameters_the_drivers_defaults_hold(host):
    assert procfs.device_file_policy(host) == procfs.DRIVER_DEFAULT_POLICY


def test_only_character_devices_have_the_majors_we_want(host, proc):
    """A block driver may have the same number or name."""
    proc(
        "devices",
        "Character devices:\n  1 mem\n195 nvidia\n195 nvidiactl\n507 nvidia-caps\n\nBlock devices:\n  8 sd\n 99 nvidia-uvm\n",
    )
    assert procfs.character_majors(host) == {"mem": 1, "nvidia": 195, "nvidiactl": 195, "nvidia-caps": 507}


def test_a_missing_devices_file_is_said_to_be_a_missing_mount(host):
    with pytest.raises(Broken, match="mount the host's /proc"):
        procfs.character_majors(host)


def test_a_capability_is_read_from_its_access_file(host, proc):
    proc("driver/nvidia/capabilities/gpu0/mig/gi1/ci0/access", "DeviceFileMinor: 13\nDeviceFileMode: 292\nDeviceFileModify: 1\n")
    found = procfs.mig_capability(host, gpu_minor=0, gpu_instance_id=1, compute_instance_id=0)
    assert found == procfs.Capability(minor=13, mode=0o444)


def test_a_capability_without_access_file_is_looked_up_in_the_table(host, proc):
    proc(
        "driver/nvidia-caps/mig-minors", "config 1\nmonitor 2\ngpu0/gi1/access 12\ngpu0/gi1/ci0/access 13\ngpu10/gi1/access 1362\n"
    )
    assert procfs.mig_capability(host, gpu_minor=0, gpu_instance_id=1, compute_instance_id=None) == procfs.Capability(
        minor=12, mode=0o444
    )
    assert procfs.mig_capability(host, gpu_minor=0, gpu_instance_id=10, compute_instance_id=None) is None


def test_the_table_says_nothing_of_a_gpu_whose_instances_the_driver_shows(host, proc):
    """The table lists every instance there could be; one that was destroyed is still in it."""
    proc("driver/nvidia-caps/mig-minors", "gpu0/gi1/access 12\n")
    proc("driver/nvidia/capabilities/gpu0/mig/gi2/access", "DeviceFileMinor: 21\nDeviceFileMode: 292\n")
    assert procfs.mig_capability(host, gpu_minor=0, gpu_instance_id=1, compute_instance_id=None) is None


@pytest.mark.parametrize(
    ("file", "content", "call"),
    [
        ("driver/nvidia/params", "DeviceFileMode: rw\n", procfs.device_file_policy),
        ("devices", "Character devices:\nxyz nvidia\n", procfs.character_majors),
        ("driver/nvidia-caps/mig-minors", "gpu0/gi1/access x\n", None),
        ("driver/nvidia/capabilities/gpu0/mig/gi1/access", "DeviceFileMinor: -\nDeviceFileMode: 292\n", None),
    ],
)
def test_junk_where_a_number_belongs_is_told_with_its_file(host, proc, file, content, call):
    proc(file, content)
    with pytest.raises(Broken, match=f"{file}: expected a number"):
        call(host) if call else procfs.mig_capability(host, gpu_minor=0, gpu_instance_id=1, compute_instance_id=None)


def test_bytes_that_are_no_text_are_no_traceback(host, proc):
    proc("devices", "")
    (host.proc / "devices").write_bytes(b"Character devices:\n195 nvidia\n\xff\xfe\n")
    with pytest.raises(Broken, match="expected a number"):
        procfs.character_majors(host)
