"""A node that lacks something says so in a sentence that a person can act on."""

from dataclasses import replace

import pytest

from gpu_dra.hardware.host import HostPaths
from gpu_dra.lifecycle.preflight.checks import Verdict, check
from gpu_dra.lifecycle.preflight.facts import HostFacts, Kernel, read_facts
from gpu_dra.lifecycle.runtime.cri import RuntimeFacts, judge

WELL = HostFacts(
    os_id="ubuntu",
    gpus={"0000:1b:00.0": "nvidia"},
    running=Kernel(release="6.8.0-50-generic", has_nvidia_module=True, has_headers=True),
    boots_next=Kernel(release="6.8.0-50-generic", has_nvidia_module=True, has_headers=True),
    module_version="580.126.09",
    module_is_open=True,
    library_version="580.126.09",
    uvm=True,
)
CONTAINERD = RuntimeFacts(name="containerd", version="v2.1.4", cdi=True, directories=("/etc/cdi", "/var/run/cdi"))
NEXT = Kernel(release="6.8.0-60-generic", has_nvidia_module=False, has_headers=False)
NO_MODULE = Kernel(release="6.8.0-50-generic", has_nvidia_module=False, has_headers=True)


def test_a_node_that_has_all_it_needs_says_yes_to_everything():
    findings = check(WELL, CONTAINERD)
    assert {finding.verdict for finding in findings} == {Verdict.TRUE}
    assert [finding.type for finding in findings] == [
        "KernelModule", "DriverLibraries", "UnifiedMemory", "NextKernel", "FabricManager", "RuntimeCdi",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("change", "kind", "says"),
    [
        ({"gpus": {"0000:1b:00.0": "nouveau"}}, "KernelModule", "nouveau has 0000:1b:00.0; write 'blacklist nouveau'"),
        ({"gpus": {"0000:1b:00.0": "vfio-pci"}}, "KernelModule", "0000:1b:00.0 is bound to vfio-pci"),
        ({"gpus": {"0000:1b:00.0": None}}, "KernelModule", "has not taken 0000:1b:00.0; dmesg says why"),
        ({"module_version": None}, "KernelModule", "installed for 6.8.0-50-generic and not loaded; run modprobe nvidia"),
        ({"module_version": None, "secure_boot": True}, "KernelModule", "Secure Boot is on"),
        (
            {"module_version": None, "running": NO_MODULE},
            "KernelModule",
            "no nvidia module for the running kernel 6.8.0-50-generic; install",
        ),
        (
            {"module_version": None, "running": replace(NO_MODULE, has_headers=False), "secure_boot": True},
            "KernelModule",
            "install linux-headers-6.8.0-50-generic; Secure Boot is on, so take your distribution's signed modules",
        ),
        (
            {"module_version": None, "running": replace(NO_MODULE, has_headers=False), "os_id": "rocky"},
            "KernelModule",
            "install kernel-devel-6.8.0-50-generic",
        ),
        (
            {"module_version": None, "running": NO_MODULE, "driver_is_hosts": False},
            "KernelModule",
            "driver container has not loaded",
        ),
        ({"module_version": "570.133.20"}, "KernelModule", "570.172.08 has it mended"),
        ({"library_version": "580.142"}, "DriverLibraries", "libraries are 580.142 and the loaded module is 580.126.09"),
        ({"library_trouble": "the driver root /x does not exist"}, "DriverLibraries", "the driver root /x does not exist"),
        ({"uvm": False}, "UnifiedMemory", "run modprobe nvidia-uvm"),
        ({"boots_next": NEXT}, "NextKernel", "after a reboot into 6.8.0-60-generic this node has no GPUs"),
        ({"boots_next": NEXT}, "NextKernel", "install linux-headers-6.8.0-60-generic"),
        ({"boots_next": replace(NEXT, has_headers=True)}, "NextKernel", "run dkms autoinstall -k 6.8.0-60-generic"),
        ({"boots_next": NEXT, "driver_is_hosts": False}, "NextKernel", "its headers are missing"),
        ({"nvswitches": 4}, "FabricManager", "nv-fabricmanager does not run, so that CUDA fails with error 802"),
    ],
)
def test_what_is_missing_is_said_with_the_way_out(change, kind, says):
    finding = next(each for each in check(replace(WELL, **change), CONTAINERD) if each.type == kind)
    assert finding.verdict is Verdict.FALSE
    assert says in finding.message


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ({"boots_next": None}, "NextKernel"),
        ({"library_version": None}, "DriverLibraries"),
        ({"module_version": None}, "UnifiedMemory"),
    ],
)
def test_what_the_host_does_not_say_is_unknown_and_no_alarm(change, kind):
    assert next(each for each in check(replace(WELL, **change), CONTAINERD) if each.type == kind).verdict is Verdict.UNKNOWN


@pytest.mark.parametrize(
    ("name", "version", "config", "cdi"),
    [
        ("containerd", "v2.1.4", '{"enableCDI": true, "cdiSpecDirs": ["/etc/cdi"]}', True),
        ("containerd", "1.7.30", '{"enableCDI": false}', False),
        ("containerd", "1.6.0", "{}", None),
        ("containerd", "1.7.0", "no json", None),
        ("containerd", "1.7.0", "[]", None),
        ("containerd", "1.7.0", '{"enableCDI": "true"}', None),
        ("cri-o", "1.34.1", "", True),
        ("cri-o", "1.20.1", "", None),
        ("containerd", "v2.4.2", '{"cdiSpecDirs": ["/etc/cdi"]}', True),
        ("containerd", "v2.4.2", '{"cdiSpecDirs": []}', False),
        ("containerd", "v2.3.1", '{"cdiSpecDirs": ["/etc/cdi"]}', None),
    ],
)
def test_the_runtime_is_judged_by_what_it_says_itself(name, version, config, cdi):
    assert judge(name=name, version=version, config=config).cdi is cdi


def test_a_runtime_with_cdi_off_is_told_how_to_turn_it_on():
    finding = check(WELL, replace(CONTAINERD, cdi=False))[-1]
    assert (finding.verdict, finding.type) == (Verdict.FALSE, "RuntimeCdi")
    assert "enable_cdi = true" in finding.message
    assert check(WELL, RuntimeFacts(trouble="no socket"))[-1].verdict is Verdict.UNKNOWN


@pytest.fixture
def host(tmp_path):
    """A host's files."""
    root, sys, proc = tmp_path / "root", tmp_path / "sys", tmp_path / "proc"
    files = {
        proc / "sys/kernel/osrelease": "6.8.0-50-generic\n",
        proc
        / "driver/nvidia/version": "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.126.09  Release Build\nGCC version: 13\n",
        proc / "devices": "Character devices:\n195 nvidia\n511 nvidia-uvm\n\nBlock devices:\n",
        proc / "77/comm": "nv-fabricmanage\n",
        proc / "driver/nvidia-nvswitch/devices/0000:05:00.0": "",
        root / "etc/os-release": 'NAME="Ubuntu"\nID=ubuntu\n',
        root
        / "lib/modules/6.8.0-50-generic/modules.dep": "kernel/a.ko:\nupdates/dkms/nvidia.ko.zst: updates/dkms/nvidia-uvm.ko.zst\n",
        root / "lib/modules/6.8.0-60-generic/modules.dep": "kernel/drivers/video/nvidia-not.ko: kernel/nvidia.ko.txt\n",
        root / "usr/src/linux-headers-6.8.0-60-generic/Makefile": "",
        root / "boot/vmlinuz-6.8.0-50-generic": "",
        root / "boot/vmlinuz-6.8.0-60-generic": "",
        root / "boot/vmlinuz-6.8.0-9-generic": "",
        root / "usr/lib/x86_64-linux-gnu/libnvidia-ml.so.580.126.09": "",
    }
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (root / "lib/modules/6.8.0-60-generic/build").symlink_to("/usr/src/linux-headers-6.8.0-60-generic")
    device = sys / "bus/pci/devices/0000:1b:00.0"
    device.mkdir(parents=True)
    (device / "vendor").write_text("0x10de\n")
    (device / "class").write_text("0x030200\n")
    (device / "driver").symlink_to("../../../bus/pci/drivers/nvidia")
    return root, HostPaths(proc=proc, sys=sys, driver_root=root, host_driver_root=root.parent)


def test_facts_are_read_from_the_hosts_files(host):
    root, paths = host
    facts = read_facts(paths, root)
    assert facts.os_id == "ubuntu"
    assert facts.gpus == {"0000:1b:00.0": "nvidia"}
    assert facts.running == Kernel(release="6.8.0-50-generic", has_nvidia_module=True, has_headers=False)
    assert facts.boots_next == Kernel(release="6.8.0-60-generic", has_nvidia_module=False, has_headers=True)
    assert (facts.module_version, facts.module_is_open, facts.uvm) == ("580.126.09", True, True)
    assert (facts.nvswitches, facts.fabric_manager_runs, facts.secure_boot) == (1, True, False)


def test_debians_own_module_is_a_module_and_a_debug_kernel_boots_by_hand_only(host):
    root, paths = host
    dep = root / "lib/modules/6.8.0-60-generic/modules.dep"
    dep.write_text("updates/dkms/nvidia-current.ko.xz: updates/dkms/nvidia-current-uvm.ko.xz\n")
    (root / "boot/vmlinuz-6.8.0-60-generic+debug").write_text("")
    assert read_facts(paths, root).boots_next == Kernel(release="6.8.0-60-generic", has_nvidia_module=True, has_headers=True)


def test_the_link_that_the_boot_loader_follows_wins_over_the_newest_kernel(host):
    root, paths = host
    (root / "vmlinuz").symlink_to("boot/vmlinuz-6.8.0-50-generic")
    assert read_facts(paths, root).boots_next.release == "6.8.0-50-generic"


@pytest.mark.parametrize(("content", "on"), [(b"\6\0\0\0\1", True), (b"\6\0\0\0\0", False), (b"", False)])
def test_secure_boot_is_the_fifth_byte(host, content, on):
    root, paths = host
    variable = paths.sys / "firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
    variable.parent.mkdir(parents=True)
    variable.write_bytes(content)
    assert read_facts(paths, root).secure_boot is on


def test_an_empty_host_raises_nothing(tmp_path):
    facts = read_facts(HostPaths(proc=tmp_path, sys=tmp_path, driver_root=tmp_path, host_driver_root=tmp_path), tmp_path)
    assert (facts.gpus, facts.running, facts.boots_next, facts.module_version) == ({}, None, None, None)
    assert facts.library_trouble
    assert check(facts, RuntimeFacts(trouble="none"))
