"""The parts of a lab that need no root: its files, its processes, its state on disk, its command line."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hack.testbed.cluster import control_plane, node_files, node_mounts, pki, status
from hack.testbed.cluster.addresses import Addresses
from hack.testbed.cluster.api import Api
from hack.testbed.cluster.bootstrap import Toolbox
from hack.testbed.cluster.cli import main
from hack.testbed.cluster.errors import LabError
from hack.testbed.cluster.folder import LabFolder, LabState, held_indices, load_state, locked_lab, save_state
from hack.testbed.cluster.processes import Process, Start, all_recorded, kill, marked, recorded, running, start, stop
from hack.testbed.cluster.spec import LabSpec, NodeSpec
from hack.testbed.cluster.waiting import wait_for

SPEC = LabSpec(
    name="demo",
    kubernetes="1.37",
    nodes=(NodeSpec(name="node-a", profile="h100x8"), NodeSpec(name="node-b")),
    feature_gates="DRAPartitionableDevices=true,Other=false",
)
STATE = LabState(spec=SPEC, addresses=Addresses(lab="demo", index=2))
ENVIRONMENT = {"PATH": "/usr/bin:/bin"}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LabFolder]:
    """An empty lab; what a test leaves running in it is killed."""
    monkeypatch.setenv("GPU_DRA_LABS", str(tmp_path))
    lab = LabFolder.of("demo")
    lab.path.mkdir()
    yield lab
    kill(marked(lab))


def sleeper(name: str = "sleeper") -> Start:
    return Start(name=name, command=("sleep", "600"), environment=ENVIRONMENT)


def test_a_process_is_recorded_and_found_again(folder: LabFolder) -> None:
    process = start(folder, sleeper())
    assert process.alive()
    assert running(folder, "sleeper") == process
    assert [found.pid for found in all_recorded(folder)] == [process.pid]


def test_a_process_without_a_record_is_found_by_its_mark(folder: LabFolder) -> None:
    """After a crash, or when somebody removed half of the folder."""
    process = start(folder, sleeper())
    (folder.processes / "sleeper.json").unlink()
    assert [found.pid for found in marked(folder)] == [process.pid]


def test_another_lab_with_the_same_beginning_is_not_taken_for_ours(folder: LabFolder) -> None:
    start(folder, sleeper())
    assert marked(LabFolder(path=folder.path.with_name("dem"))) == []


def test_a_process_id_that_went_to_somebody_else_is_never_hit(folder: LabFolder) -> None:
    bystander = start(folder, sleeper())
    stale = Process(name="stale", pid=bystander.pid, started=bystander.started - 1)
    stale.send(signal.SIGKILL)
    assert not stale.alive()
    assert bystander.alive()


def test_a_process_that_ignores_the_polite_signal_is_killed(folder: LabFolder) -> None:
    deaf = "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint('deaf', flush=True)\ntime.sleep(600)"
    process = start(folder, Start(name="deaf", command=(sys.executable, "-c", deaf), environment=ENVIRONMENT))
    wait_for("deafness", lambda: "deaf" in folder.log("deaf").read_text(), needs=[process], deadline_s=10)
    stop(process, grace_s=0.05)
    assert not process.alive()


def test_a_program_that_is_not_there_says_so_in_its_log(folder: LabFolder) -> None:
    process = start(folder, Start(name="ghost", command=("/no/such/program",), environment=ENVIRONMENT))
    with pytest.raises(LabError, match=r"ghost ended(.|\n)*cannot start /no/such/program"):
        wait_for("ghost", lambda: False, needs=[process], deadline_s=10)


def test_a_damaged_record_is_no_process(folder: LabFolder) -> None:
    folder.processes.mkdir()
    (folder.processes / "etcd.json").write_text("{")
    assert recorded(folder, "etcd") is None


def test_the_state_of_a_lab_is_read_as_it_was_written(folder: LabFolder) -> None:
    save_state(folder, STATE)
    assert load_state(folder) == STATE


def test_damaged_state_names_the_way_out(folder: LabFolder) -> None:
    folder.state.write_text('{"spec": {}}')
    with pytest.raises(LabError, match="hack/cluster down --name demo"):
        load_state(folder)


def test_the_index_of_another_lab_is_held_and_our_own_is_not(folder: LabFolder) -> None:
    save_state(folder, STATE)
    assert held_indices(but=folder) == set()
    assert held_indices(but=LabFolder.of("other")) == {2}


def test_a_lab_that_went_away_while_we_waited_is_locked_anew(folder: LabFolder) -> None:
    folder.path.rmdir()
    with locked_lab(folder):
        assert folder.path.is_dir()


def test_the_certificates_of_a_lab_convince_a_strict_client(folder: LabFolder) -> None:
    """Python 3.13 refuses authorities without key usage; a kubeconfig that cannot be used would only show in the cluster tests."""
    pki.ensure(folder, STATE)
    api = Api.from_kubeconfig(folder.kubeconfig("admin"))
    assert api.server == "https://10.77.2.1:6443"
    assert f'{api.token},admin,admin,"system:masters"' in (folder.pki / "tokens.csv").read_text()
    assert len(api.trust.get_ca_certs()) == 1


def test_secrets_are_readable_by_their_owner_only(folder: LabFolder) -> None:
    pki.ensure(folder, STATE)
    secrets = [folder.pki / "tokens.csv", *folder.kubeconfig("").iterdir(), *folder.pki.glob("*.key")]
    assert [path.name for path in secrets if path.stat().st_mode & 0o077] == []


def test_running_components_keep_their_certificates_when_a_lab_is_mended(folder: LabFolder) -> None:
    pki.ensure(folder, STATE)
    before = folder.kubeconfig("admin").read_text()
    pki.ensure(folder, STATE)
    assert folder.kubeconfig("admin").read_text() == before


def test_every_program_is_told_the_feature_gates(folder: LabFolder, tmp_path: Path) -> None:
    """A gate that only the API server knows would drop fields that the scheduler was to use."""
    for name in control_plane.PROGRAMS:
        (tmp_path / name).touch()
    commands = control_plane.commands(folder, STATE, Toolbox(folders=(tmp_path,)))
    gates = f"--feature-gates={SPEC.feature_gates}"
    assert [name for name, command in commands.items() if gates not in command] == [control_plane.ETCD]
    pki.ensure(folder, STATE)
    files = node_files.files(folder, STATE, "node-a")
    wanted = {"DRAPartitionableDevices": True, "Other": False}
    assert json.loads(files["/etc/kubernetes/kubelet.yaml"])["featureGates"] == wanted
    assert json.loads(files["/etc/kubernetes/kube-proxy.yaml"])["featureGates"] == wanted


def test_each_node_gives_out_pod_addresses_of_its_own(folder: LabFolder) -> None:
    pki.ensure(folder, STATE)
    ranges = {node: node_files.files(folder, STATE, node)["/etc/cni/net.d/10-pods.conflist"] for node in ("node-a", "node-b")}
    assert "10.88.33.0/24" in ranges["node-a"]
    assert "10.88.34.0/24" in ranges["node-b"]


def test_a_node_becomes_private_before_anything_else_is_mounted() -> None:
    """A mount that reached the machine would outlive the node."""
    assert node_mounts.plan(Path("/labs/demo/node/a"))[0] == ("mount", "--make-rprivate", "/")


def test_no_mount_point_is_made_on_the_machine() -> None:
    """Folders that the machine lacks are made in an overlay, which must be there before them."""
    commands = node_mounts.plan(Path("/labs/demo/node/a"))
    overlays = [command[-1] for command in commands if "overlay" in command]
    for command in (command for command in commands if command[0] == "mkdir"):
        for path in (argument for argument in command[1:] if argument.startswith("/var/lib")):
            assert any(path.startswith(f"{overlay}/") for overlay in overlays)


def test_a_status_is_healthy_only_when_nothing_is_missing() -> None:
    node = {"name": "a", "ready": True, "processes": {"init": 4, "kubelet": 5}}
    whole = {"server_ready": True, "control_plane": {"etcd": 3}, "nodes": [node]}
    assert status.healthy(whole)
    assert not status.healthy({**whole, "control_plane": {"etcd": None}})
    assert not status.healthy({**whole, "nodes": [{**node, "ready": False}]})
    assert not status.healthy({**whole, "nodes": [{**node, "processes": {"init": None}}]})


def test_a_node_command_without_a_command_says_how_it_is_written(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["node-exec", "node-a"]) == 1
    assert "node-exec node-a -- nvidia-smi -L" in capsys.readouterr().err


def test_an_impossible_lab_name_is_one_line_and_not_a_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["logs", "--name", "../etc"]) == 1
    assert capsys.readouterr().err.count("\n") == 1


def test_a_node_that_cannot_be_is_refused_before_anything_is_done(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["up", "--node", "Not_A_Node=h100x8"]) == 1
    assert "node name 'Not_A_Node'" in capsys.readouterr().err


def test_logs_of_a_component_that_is_not_there_name_those_that_are(folder: LabFolder, capsys: pytest.CaptureFixture[str]) -> None:
    folder.logs.mkdir()
    folder.log("etcd").touch()
    assert main(["logs", "kubelet"]) == 1
    assert "it has etcd" in capsys.readouterr().err


def test_a_caller_is_never_among_those_it_hunts(folder: LabFolder) -> None:
    """`down` may be run from inside a shell that carries the mark."""
    hunt = (
        "import sys; sys.path.insert(0, sys.argv[2])\n"
        "from hack.testbed.cluster.folder import LabFolder\nfrom hack.testbed.cluster.processes import marked\nfrom pathlib import Path\n"
        "print('found', marked(LabFolder(path=Path(sys.argv[1]))), flush=True)"
    )
    root = str(Path(__file__).resolve().parents[3])
    hunter = start(
        folder, Start(name="hunter", command=(sys.executable, "-c", hunt, str(folder.path), root), environment=ENVIRONMENT)
    )
    log = folder.log("hunter")
    wait_for("hunter", lambda: "found []" in log.read_text() or not hunter.alive(), needs=[], deadline_s=10)
    assert log.read_text() == "found []\n"
