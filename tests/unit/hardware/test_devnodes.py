"""Device nodes have the numbers the driver says, a missing one is made, and a wrong one is named and left alone.

Needs root, as `make test` does: real nodes are made in a temporary folder.
"""

from __future__ import annotations

import os
import stat
from dataclasses import replace

import pytest

from gpu_dra.core.errors import Broken, NotReady
from gpu_dra.hardware import devnodes
from gpu_dra.hardware.devnodes import NodeSpec
from gpu_dra.model.gpu import Gpu
from gpu_dra.model.mig import MigDevice, MigProfile, Placement
from gpu_dra.model.pci import PciAddress

GPU = Gpu(minor=3, uuid="GPU-3", pci=PciAddress.parse("0000:1b:00.0"), product_name="NVIDIA RTX PRO 6000")
PROFILE = MigProfile(
    name="1g.24gb",
    profile_id=14,
    multiprocessors=46,
    copy_engines=1,
    decoders=1,
    encoders=1,
    jpeg_engines=1,
    ofa_engines=0,
    memory_mib=1,
)
MIG = MigDevice(
    uuid="MIG-3",
    parent_minor=3,
    parent_uuid="GPU-3",
    gpu_instance_id=7,
    compute_instance_id=0,
    profile=PROFILE,
    placement=Placement(start=0, size=1),
)
DEVICES = ("195 nvidia", "195 nvidia-modeset", "195 nvidiactl", "507 nvidia-caps", "508 nvidia-uvm")


@pytest.fixture
def host(host):
    (host.proc / "driver/nvidia").mkdir(parents=True)
    host.dev.mkdir()
    load(host, DEVICES)
    return host


def load(host, devices):
    (host.proc / "devices").write_text("Character devices:\n" + "\n".join(devices) + "\n\nBlock devices:\n")


def allow(host, instance, minor):
    access = host.proc / f"driver/nvidia/capabilities/gpu3/mig/{instance}/access"
    access.parent.mkdir(parents=True)
    access.write_text(f"DeviceFileMinor: {minor}\nDeviceFileMode: 292\nDeviceFileModify: 1\n")


def number(path):
    found = path.stat()
    return stat.S_ISCHR(found.st_mode), os.major(found.st_rdev), os.minor(found.st_rdev), stat.S_IMODE(found.st_mode)


def test_a_gpu_has_the_node_of_its_minor(host):
    assert devnodes.gpu_nodes(host, GPU) == (NodeSpec(path="/dev/nvidia3", major=195, minor=3, file_mode=0o666),)


def test_an_older_driver_calls_its_major_frontend(host):
    load(host, ["195 nvidia-frontend"])
    assert devnodes.gpu_nodes(host, GPU)[0].major == 195


def test_without_the_kernel_module_a_gpu_has_no_number(host):
    load(host, ["1 mem"])
    with pytest.raises(NotReady, match="modprobe nvidia"):
        devnodes.gpu_nodes(host, GPU)


def test_drm_nodes_belong_to_a_gpu_where_udev_made_them(host, pci_device):
    pci_device("0000:1b:00.0")
    for name, minor in {"card1": 1, "renderD128": 128}.items():
        directory = host.sys / "bus/pci/devices/0000:1b:00.0/drm" / name
        directory.mkdir(parents=True)
        (directory / "dev").write_text(f"226:{minor}\n")
    (host.dev / "dri").mkdir()
    os.mknod(host.dev / "dri/renderD128", stat.S_IFCHR | 0o660, os.makedev(226, 128))
    assert [node.path for node in devnodes.gpu_nodes(host, GPU)] == ["/dev/nvidia3", "/dev/dri/renderD128"]


def test_a_mig_device_has_its_gpu_and_the_capabilities_of_both_its_instances(host):
    allow(host, "gi7", 471)
    allow(host, "gi7/ci0", 472)
    assert devnodes.mig_nodes(host, GPU, MIG) == (
        NodeSpec(path="/dev/nvidia3", major=195, minor=3, file_mode=0o666),
        NodeSpec(path="/dev/nvidia-caps/nvidia-cap471", major=507, minor=471, file_mode=0o444),
        NodeSpec(path="/dev/nvidia-caps/nvidia-cap472", major=507, minor=472, file_mode=0o444),
    )


def test_a_mig_device_whose_capability_is_gone_is_named(host):
    allow(host, "gi7", 471)
    with pytest.raises(NotReady, match=r"gpu-3-mig-1g24gb-14-0.*compute instance 0 of GPU instance 7"):
        devnodes.mig_nodes(host, GPU, MIG)


@pytest.mark.parametrize(("profile", "drm"), [("1g.24gb", False), ("1g.24gb+gfx", True)])
def test_only_a_graphics_profile_has_drm_nodes(host, pci_device, profile, drm):
    allow(host, "gi7", 471)
    allow(host, "gi7/ci0", 472)
    pci_device("0000:1b:00.0")
    directory = host.sys / "bus/pci/devices/0000:1b:00.0/drm/renderD128"
    directory.mkdir(parents=True)
    (directory / "dev").write_text("226:128\n")
    (host.dev / "dri").mkdir()
    os.mknod(host.dev / "dri/renderD128", stat.S_IFCHR | 0o660, os.makedev(226, 128))
    nodes = devnodes.mig_nodes(host, GPU, replace(MIG, profile=replace(PROFILE, name=profile)))
    assert ("/dev/dri/renderD128" in [node.path for node in nodes]) is drm


def test_control_nodes_are_those_of_the_loaded_modules(host):
    assert [(node.path, node.major, node.minor) for node in devnodes.control_nodes(host)] == [
        ("/dev/nvidiactl", 195, 255),
        ("/dev/nvidia-modeset", 195, 254),
        ("/dev/nvidia-uvm", 508, 0),
        ("/dev/nvidia-uvm-tools", 508, 1),
    ]


def test_without_the_uvm_module_no_cuda_program_can_run_and_that_is_said(host):
    load(host, ["195 nvidia"])
    with pytest.raises(NotReady, match="modprobe nvidia-uvm"):
        devnodes.control_nodes(host)


def test_a_missing_node_is_made_with_the_drivers_numbers_and_permissions(host):
    (host.proc / "driver/nvidia/params").write_text(
        "ModifyDeviceFiles: 1\nDeviceFileUID: 0\nDeviceFileGID: 44\nDeviceFileMode: 432\n"
    )
    devnodes.ensure(host, devnodes.gpu_nodes(host, GPU))
    assert number(host.dev / "nvidia3") == (True, 195, 3, 0o660)
    assert (host.dev / "nvidia3").stat().st_gid == 44


def test_a_missing_directory_of_nodes_is_made_too(host):
    devnodes.ensure(host, [NodeSpec(path="/dev/nvidia-caps/nvidia-cap471", major=507, minor=471, file_mode=0o444)])
    assert number(host.dev / "nvidia-caps/nvidia-cap471") == (True, 507, 471, 0o444)
    assert [path.name for path in (host.dev / "nvidia-caps").iterdir()] == ["nvidia-cap471"]


def test_a_node_that_is_right_is_not_touched(host):
    os.mknod(host.dev / "nvidia3", stat.S_IFCHR | 0o600, os.makedev(195, 3))
    devnodes.ensure(host, devnodes.gpu_nodes(host, GPU))
    assert number(host.dev / "nvidia3") == (True, 195, 3, 0o600)


def test_a_node_with_another_number_is_named_and_left_alone(host):
    """A dynamic major may be another one after the module was loaded again."""
    os.mknod(host.dev / "nvidia3", stat.S_IFCHR, os.makedev(195, 9))
    with pytest.raises(Broken, match=r"/dev/nvidia3 .* has device number 195:9, but the driver has 195:3"):
        devnodes.ensure(host, devnodes.gpu_nodes(host, GPU))
    assert number(host.dev / "nvidia3")[:3] == (True, 195, 9)


def test_a_file_in_a_nodes_place_is_named_and_left_alone(host):
    (host.dev / "nvidia3").write_text("")
    with pytest.raises(Broken, match="not a character device"):
        devnodes.ensure(host, devnodes.gpu_nodes(host, GPU))


def test_nodes_that_an_administrator_keeps_are_not_made(host):
    (host.proc / "driver/nvidia/params").write_text("ModifyDeviceFiles: 0\n")
    with pytest.raises(NotReady, match=r"NVreg_ModifyDeviceFiles=0 .*mknod -m 666 /dev/nvidia3 c 195 3"):
        devnodes.ensure(host, devnodes.gpu_nodes(host, GPU))


def test_a_dev_that_cannot_be_written_is_named_with_the_way_out(host):
    (host.dev / "nvidia-caps").write_text("a file where the directory should be")
    node = NodeSpec(path="/dev/nvidia-caps/nvidia-cap471", major=507, minor=471, file_mode=0o444)
    with pytest.raises(NotReady, match=r"/dev/nvidia-caps/nvidia-cap471 .*mount the host's /dev"):
        devnodes.ensure(host, [node])
