"""Whoever starts it wrongly gets one clear line and a non-zero exit, never a traceback."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

CLEAN = {key: value for key, value in os.environ.items() if key not in {"NODE_NAME", "KUBECONFIG", "KUBERNETES_SERVICE_HOST"}}


@pytest.fixture
def kubeconfig(tmp_path):
    path = tmp_path / "kubeconfig"
    path.write_text(
        '{"current-context": "a", "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],'
        ' "clusters": [{"name": "a", "cluster": {"server": "http://127.0.0.1:9"}}], "users": [{"name": "a", "user": {"token": "t"}}]}'
    )
    return path


@pytest.fixture
def good(tmp_path, kubeconfig):
    """Flags with which it would start."""
    return {
        "--node-name": "a",
        "--kubeconfig": str(kubeconfig),
        "--simulate": "h100x8",
        "--cdi-root": str(tmp_path / "cdi"),
        "--kubelet-plugins-directory-path": str(tmp_path / "p"),
        "--kubelet-registrar-directory-path": str(tmp_path / "r"),
    }


def run(flags, *more, environment=None):
    arguments = [word for pair in flags.items() for word in pair] + list(more)
    command = [sys.executable, "-m", "gpu_dra", "node", *arguments]
    return subprocess.run(command, env={**CLEAN, **(environment or {})}, capture_output=True, text=True, timeout=20, check=False)


def fails_with_one_line(done, words, *, code=1):
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    (line,) = done.stderr.splitlines()
    assert line.startswith("gpu-dra node: ")
    assert words in line
    assert not done.stdout


def test_no_node_name(good):
    del good["--node-name"]
    fails_with_one_line(run(good), "--node-name")


def test_no_cluster(good):
    del good["--kubeconfig"]
    fails_with_one_line(run(good), "--kubeconfig")


def test_a_kubeconfig_that_is_not_there(good):
    fails_with_one_line(run({**good, "--kubeconfig": "/nowhere/config"}), "/nowhere/config")


def test_a_kubeconfig_that_is_garbage(good, tmp_path):
    path = tmp_path / "garbage"
    path.write_text("}{")
    fails_with_one_line(run({**good, "--kubeconfig": str(path)}), str(path))


def test_a_kubeconfig_that_cannot_be_read(good, tmp_path):
    fails_with_one_line(run({**good, "--kubeconfig": str(tmp_path)}), str(tmp_path))


def test_a_pod_without_a_service_account_token(good):
    """The variables of a pod are there, the token is not mounted."""
    del good["--kubeconfig"]
    done = run(good, environment={"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "443"})
    fails_with_one_line(done, "/var/run/secrets/kubernetes.io/serviceaccount")


def test_an_unknown_machine_to_simulate(good):
    fails_with_one_line(run({**good, "--simulate": "dgx-9000"}), "h100x8")


def test_a_socket_path_too_long_for_the_kernel(good, tmp_path):
    long = tmp_path / ("x" * 100)
    fails_with_one_line(run({**good, "--kubelet-registrar-directory-path": str(long)}), "--kubelet-registrar-directory-path")


def test_a_directory_that_cannot_be_made(good):
    fails_with_one_line(run({**good, "--cdi-root": "/proc/nowhere"}), "--cdi-root")


def test_a_file_where_a_directory_should_be(good, tmp_path):
    (tmp_path / "file").write_text("")
    done = run({**good, "--kubelet-plugins-directory-path": str(tmp_path / "file")})
    fails_with_one_line(done, "--kubelet-plugins-directory-path")


def test_a_port_that_is_taken(good):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        endpoint = f"127.0.0.1:{taken.getsockname()[1]}"
        fails_with_one_line(run({**good, "--http-endpoint": endpoint}), endpoint)


def test_a_health_check_port_that_is_taken(good):
    with socket.socket(socket.AF_INET6) as taken:
        taken.bind(("::", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        fails_with_one_line(run({**good, "--healthcheck-port": port}), "--healthcheck-port")


def test_a_stranger_in_the_place_of_a_socket(good):
    stranger = Path(good["--kubelet-registrar-directory-path"]) / "gpu.nvidia.com-reg.sock"
    stranger.parent.mkdir()
    stranger.write_text("mine")
    fails_with_one_line(run(good), str(stranger))
    assert stranger.read_text() == "mine"


def test_no_command():
    done = subprocess.run([sys.executable, "-m", "gpu_dra"], capture_output=True, text=True, timeout=20, check=False)
    assert done.returncode == 2
    assert "COMMAND" in done.stderr


def test_an_unknown_flag(good):
    done = run(good, "--nonsense")
    assert done.returncode == 2
    assert "--nonsense" in done.stderr


@pytest.mark.parametrize(
    ("flag", "value"),
    [
        ("--log-level", "loud"),
        ("--healthcheck-port", "99999"),
        ("--http-endpoint", "nowhere"),
        ("--http-endpoint", "8080"),
        ("--http-endpoint", "127.0.0.1:99999"),
        ("--proc-root", "relative/path"),
        ("--container-driver-root", "relative/path"),
        ("--nvidia-cdi-hook-path", "hook"),
    ],
)
def test_a_bad_value_names_its_flag(good, flag, value):
    done = run({**good, flag: value})
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert flag in done.stderr


@pytest.mark.parametrize(("flag", "value"), [("--node-name", "../etc"), ("--node-name", "Node_A"), ("--pod-uid", "a/b")])
def test_a_name_that_kubernetes_would_not_give_is_refused(good, flag, value):
    fails_with_one_line(run({**good, flag: value}), flag)


def test_a_bad_value_in_the_environment_names_the_variable(good):
    done = run(good, environment={"LOG_LEVEL": "loud"})
    assert done.returncode == 2
    assert "LOG_LEVEL" in done.stderr


def test_a_bad_value_in_the_environment_keeps_nobody_from_the_help():
    """Who looks for help may have just that value wrong."""
    done = run({}, "--help", environment={"LOG_LEVEL": "DEBUG", "HTTP_ENDPOINT": "8080"})
    assert (done.returncode, done.stderr) == (0, "")


def test_help_tells_every_flag_and_its_environment_variable():
    done = run({}, "--help")
    assert done.returncode == 0
    assert "CDI_ROOT" in done.stdout


def test_a_second_one_on_the_same_sockets_is_refused(good):
    first = subprocess.Popen(
        [sys.executable, "-m", "gpu_dra", "node", *[word for pair in good.items() for word in pair]],
        env=CLEAN,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        for line in first.stderr:
            if "node plugin started" in line:
                break
        fails_with_one_line(run(good), "another gpu-dra node process")
        assert (Path(good["--kubelet-registrar-directory-path"]) / "gpu.nvidia.com-reg.sock").is_socket()
    finally:
        first.terminate()
        first.communicate(timeout=20)
