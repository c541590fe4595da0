"""`hack/kind/up`: what it says where something is missing, and what it does where nothing is. Tools are stand-ins that note their calls."""

import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[3]
UP = ROOT / "hack/kind/up"
BASH = shutil.which("bash")
TOOLS = ("docker", "kind", "helm", "kubectl")
STAND_IN = '#!{bash}\necho "{tool} $*" >> "{calls}"\n{more}\n'


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


class Machine:
    """A PATH with only what is laid there."""

    def __init__(self, folder):
        self.bin = folder / "bin"
        self.bin.mkdir()
        self.calls = folder / "calls"
        self.archive = folder / "image.tar"
        self.archive.touch()
        for tool in ("dirname", "grep", "cat"):
            (self.bin / tool).symlink_to(shutil.which(tool))

    def has(self, *tools, **more):
        for tool in tools:
            path = self.bin / tool
            path.write_text(STAND_IN.format(bash=BASH, tool=tool, calls=self.calls, more=more.get(tool, "")))
            path.chmod(0o755)
        return self

    def up(self, *arguments):
        return subprocess.run([BASH, str(UP), *arguments], env={"PATH": str(self.bin)}, capture_output=True, text=True, check=False)

    def done(self):
        return self.calls.read_text().splitlines() if self.calls.exists() else []


@pytest.mark.parametrize(
    ("there", "missing"),
    [
        (("kind", "helm", "kubectl"), "docker"),
        (("docker", "helm", "kubectl"), "kind"),
        ((), "docker, kind, helm, kubectl"),
    ],
)
def test_what_is_missing_is_told_in_one_line_before_anything_is_done(machine, there, missing):
    ended = machine.has(*there).up()
    assert ended.returncode == 1
    assert ended.stdout == ""
    assert ended.stderr.startswith(f"hack/kind/up: missing: {missing}; ")
    assert ended.stderr.count("\n") == 1
    assert machine.done() == []


def test_a_docker_whose_daemon_is_down_is_told_in_one_line(machine):
    ended = machine.has(*TOOLS, docker="echo 'Cannot connect' >&2; exit 1").up()
    assert ended.returncode == 1
    assert ended.stderr.startswith("hack/kind/up: the Docker daemon does not answer; ")
    assert ended.stderr.count("\n") == 1
    assert machine.done() == ["docker info"]


def test_an_archive_that_is_not_there_is_told_before_a_cluster_is_made(machine):
    ended = machine.has(*TOOLS).up("--archive", "/no/such.tar")
    assert ended.returncode == 1
    assert ended.stderr.startswith("hack/kind/up: /no/such.tar: no such image archive; ")
    assert machine.done() == ["docker info"]


@pytest.mark.parametrize("arguments", [("--kubernetes", "1.33"), ("--kubernetes",), ("--name", ""), ("--nonsense",), ("up",)])
def test_a_wrong_command_line_is_told_with_the_usage(machine, arguments):
    ended = machine.up(*arguments)
    assert ended.returncode == 2
    assert "usage: hack/kind/up" in ended.stderr


def test_cluster_image_and_chart_come_in_this_order(machine):
    ended = machine.has(*TOOLS).up("--archive", str(machine.archive), "--name", "lab", "--simulate", "a100x8", "--", "--set", "a=b")
    assert (ended.returncode, ended.stderr) == (0, "")
    calls = machine.done()
    assert [" ".join(call.split()[:3]) for call in calls] == [
        "docker info",
        "kind get clusters",
        "kind create cluster",
        "kind load image-archive",
        "helm upgrade --install",
        "kubectl --context kind-lab",
    ]
    assert calls[3] == f"kind load image-archive {machine.archive} --name lab"
    assert "--kube-context kind-lab " in calls[4]
    assert "--set node.simulate=a100x8 " in calls[4]
    assert "--set detector.enabled=false " in calls[4]
    assert calls[4].endswith(" --set a=b")


@pytest.mark.parametrize(("clusters", "made"), [("gpu-dra", False), ("gpu-dra-2", True)])
def test_a_cluster_of_that_name_is_used_again(machine, clusters, made):
    there = f'if [ "$1" = get ]; then echo {clusters}; fi'
    assert machine.has(*TOOLS, kind=there).up("--archive", str(machine.archive)).returncode == 0
    assert any(call.startswith("kind create cluster") for call in machine.done()) is made


@pytest.mark.parametrize("kubernetes", ["1.34", "1.35", "1.36", "1.37"])
def test_node_images_are_named_by_digest(machine, kubernetes):
    machine.has(*TOOLS).up("--archive", str(machine.archive), "--kubernetes", kubernetes)
    [create] = [call for call in machine.done() if call.startswith("kind create cluster")]
    assert f"--image kindest/node:v{kubernetes}." in create
    assert len(create.partition("@sha256:")[2].split()[0]) == 64


def test_a_step_that_fails_ends_it(machine):
    ended = machine.has(*TOOLS, helm="exit 3").up("--archive", str(machine.archive))
    assert ended.returncode == 3
    assert machine.done()[-1].startswith("helm ")


def test_the_cluster_has_workers_that_the_chart_takes_for_gpu_nodes():
    config = yaml.safe_load((ROOT / "hack/kind/config.yaml").read_text())
    workers = [node for node in config["nodes"] if node["role"] == "worker"]
    assert workers
    assert all(node["labels"] == {"nvidia.com/gpu.present": "true"} for node in workers)


def test_the_workflow_runs_this_script_with_versions_it_knows(machine):
    workflow = yaml.safe_load((ROOT / ".github/workflows/kind.yml").read_text())
    job = workflow["jobs"]["kind"]
    assert any("hack/kind/up --kubernetes ${{ matrix.kubernetes }}" in step.get("run", "") for step in job["steps"])
    machine.has(*TOOLS)
    for kubernetes in job["strategy"]["matrix"]["kubernetes"]:
        assert machine.up("--kubernetes", kubernetes, "--archive", str(machine.archive)).returncode == 0
