"""The kernel takes 107 bytes of socket path, and a name must never be stolen from a living process."""

import os
import socket
from pathlib import Path

import pytest

from gpu_dra.core.errors import Conflict, Refused
from gpu_dra.core.locks import LockDirectory
from gpu_dra.node.sockets import MOST_PATH_BYTES, claim_name, plan_sockets, sweep_names

KUBELET = Path("/var/lib/kubelet")
POD_UID = "5f1c3d1e-8f5b-4c3a-9d2e-0a1b2c3d4e5f"


def plan(root: Path, *, driver: str = "gpu.nvidia.com", pod_uid: str = ""):
    return plan_sockets(driver, plugins_directory=root / "plugins", registrar_directory=root / "plugins_registry", pod_uid=pod_uid)


def test_without_a_pod_uid_the_names_are_those_of_nvidias_driver():
    paths = plan(KUBELET)
    assert str(paths.dra) == "/var/lib/kubelet/plugins/gpu.nvidia.com/dra.sock"
    assert str(paths.registration) == "/var/lib/kubelet/plugins_registry/gpu.nvidia.com-reg.sock"


def test_two_pods_get_different_names_so_that_they_overlap_in_an_update():
    first, second = plan(KUBELET, pod_uid=POD_UID), plan(KUBELET, pod_uid=POD_UID.replace("5", "6"))
    assert first.dra != second.dra
    assert first.registration != second.registration


@pytest.mark.parametrize("root", ["/var/lib/kubelet", "/var/snap/microk8s/common/var/lib/kubelet", "/" + "k" * 50])
def test_a_long_kubelet_directory_shortens_the_pod_uid_and_not_the_difference(root):
    paths = [plan(Path(root), pod_uid=uid) for uid in (POD_UID, POD_UID[::-1])]
    assert all(len(os.fsencode(p)) <= MOST_PATH_BYTES for pair in paths for p in (pair.dra, pair.registration))
    assert paths[0].registration != paths[1].registration


def test_a_directory_too_long_for_the_kernel_is_refused_with_the_flag_to_change():
    with pytest.raises(Refused, match=r"107.*--kubelet-registrar-directory-path"):
        plan(Path("/" + "x" * 90), pod_uid=POD_UID)


def test_a_dead_process_leaves_a_socket_that_is_replaced(tmp_path):
    path = tmp_path / "dra.sock"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    os.close(claim_name(path, LockDirectory(tmp_path)))
    assert not path.exists()


def test_a_socket_of_a_living_process_is_not_stolen(tmp_path):
    path = tmp_path / "dra.sock"
    held = claim_name(path, LockDirectory(tmp_path))
    with pytest.raises(Conflict, match="--pod-uid"):
        claim_name(path, LockDirectory(tmp_path))
    os.close(held)


def test_a_file_in_the_way_is_refused_and_left_alone(tmp_path):
    path = tmp_path / "dra.sock"
    path.write_text("precious")
    with pytest.raises(Refused, match="not a socket"):
        claim_name(path, LockDirectory(tmp_path))
    assert path.read_text() == "precious"


def test_what_killed_pods_left_under_other_names_is_cleared_away_and_the_living_is_not(tmp_path):
    locks = LockDirectory(tmp_path)
    dead, alive = tmp_path / "dra-dead.sock", tmp_path / "dra-alive.sock"
    for path in (dead, alive):
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(path))
    os.close(locks.try_hold(dead.name))
    held = locks.try_hold(alive.name)
    sweep_names([tmp_path], locks)
    assert {path.name for path in tmp_path.iterdir()} == {alive.name, f"{alive.name}.lock"}
    os.close(held)
