"""Whether a container still has a claim's devices, read from a made-up /proc.

`/dev/null` and `/dev/zero` stand for device nodes: the kernel's own, so that no test needs root.
"""

import shutil

import pytest

from gpu_dra.claims.users import ContainerUsers, own_nodes
from gpu_dra.hardware.host import HostPaths
from tests.unit.claims.samples import held, prepared

CONTAINER_MOUNTS = "36 35 98:0 /lib/libcuda.so.580 /usr/lib/libcuda.so.580 ro - ext4 /dev/root ro\n"
SERVICE_MOUNTS = "36 35 98:0 / / rw - ext4 /dev/root rw\n"
CLAIM = prepared(1, held("gpu-3"), node_paths=("/dev/nvidiactl", "/dev/nvidia3"))


@pytest.fixture
def host(tmp_path):
    (tmp_path / "proc").mkdir()
    (tmp_path / "dev").mkdir()
    for minor in range(4):
        (tmp_path / f"dev/nvidia{minor}").symlink_to("/dev/null")
    return HostPaths(proc=tmp_path / "proc", dev=tmp_path / "dev")


@pytest.fixture
def process(host):
    """Adds a process: its mount namespace, the nodes in its own /dev (None: the host's), its mounts."""

    def add(pid, *, namespace, nodes=(), mounts=CONTAINER_MOUNTS, target="/dev/null"):
        directory = host.proc / str(pid)
        (directory / "ns").mkdir(parents=True)
        (directory / "ns/mnt").symlink_to(f"mnt:[{namespace}]")
        (directory / "root").mkdir()
        (directory / "mountinfo").write_text(mounts)
        if nodes is None:
            (directory / "root/dev").symlink_to(host.dev)
            return directory
        for node in ("null", *nodes):
            path = directory / "root/dev" / node
            path.parent.mkdir(parents=True, exist_ok=True)
            path.symlink_to(target)
        return directory

    return add


def user(host, claim=CLAIM):
    return ContainerUsers(host, boot_id="boot-1").in_use(claim)


def test_a_container_with_the_gpu_is_found(host, process):
    process(7, namespace=2, nodes=["nvidia3"])
    assert user(host) == "pid 7"


def test_a_container_with_another_gpu_is_no_user(host, process):
    process(7, namespace=2, nodes=["nvidia1", "nvidiactl"])
    assert user(host) is None


def test_a_host_service_with_a_mount_namespace_of_its_own_is_no_user(host, process):
    """Systemd gives each service with PrivateTmp one; its /dev is the host's."""
    process(7, namespace=2, nodes=None)
    assert user(host) is None


def test_a_privileged_pod_without_a_claim_is_no_user(host, process):
    """kube-proxy and network plugins get every device node of the host, and run for ever."""
    process(7, namespace=2, nodes=["nvidia0", "nvidia1", "nvidia2", "nvidia3"], mounts=SERVICE_MOUNTS)
    assert user(host) is None


def test_a_node_of_that_name_with_other_numbers_is_another_device(host, process):
    process(7, namespace=2, nodes=["nvidia3"], target="/dev/zero")
    assert user(host) is None


def test_the_name_decides_when_the_node_is_gone_from_the_host(host, process):
    (host.dev / "nvidia3").unlink()
    process(7, namespace=2, nodes=["nvidia3"])
    assert user(host) == "pid 7"


def test_a_process_that_ends_while_it_is_looked_at_is_passed_over(host, process):
    (host.proc / "6").mkdir()
    process(7, namespace=2, nodes=["nvidia3"])
    assert user(host) == "pid 7"


def test_what_cannot_be_looked_into_counts_as_a_user(host, process):
    directory = process(7, namespace=2, nodes=[])
    (directory / "root/dev/nvidia3").symlink_to("nvidia3")  # a loop: neither there nor not there
    assert "pid 7, which cannot be looked into" in user(host)


def test_no_container_outlives_a_reboot(host, process):
    process(7, namespace=2, nodes=["nvidia3"])
    assert user(host, prepared(1, held("gpu-3"), boot_id="boot-0")) is None


def test_a_mig_claim_is_told_by_its_capabilities_not_by_the_gpu_it_shares(host, process):
    claim = prepared(1, held("gpu-0-mig-1g10gb-19-0"), node_paths=("/dev/nvidia0", "/dev/nvidia-caps/nvidia-cap12"))
    process(7, namespace=2, nodes=["nvidia0", "nvidia-caps/nvidia-cap21"])
    assert own_nodes(claim) == ("/dev/nvidia-caps/nvidia-cap12",)
    assert user(host, claim) is None
    process(8, namespace=3, nodes=["nvidia0", "nvidia-caps/nvidia-cap12"])
    assert user(host, claim) == "pid 8"


def test_the_real_proc_can_be_read():
    """Processes of the machine that runs the tests; none has a GPU with this number."""
    found = ContainerUsers(HostPaths(), boot_id="boot-1").in_use(prepared(1, held("gpu-4094")))
    assert found is None or "cannot be looked into" in found


def test_a_mount_whose_path_is_no_text_is_read_all_the_same(host, process):
    directory = process(7, namespace=2, nodes=["nvidia3"])
    (directory / "mountinfo").write_bytes(b"35 35 98:0 / /mnt/\xff\xfe rw - ext4 /dev/root rw\n" + CONTAINER_MOUNTS.encode())
    assert user(host) == "pid 7"


def test_without_the_hosts_dev_nothing_can_be_told_so_the_claim_is_kept(host):
    shutil.rmtree(host.dev)
    assert "cannot be found" in user(host)
