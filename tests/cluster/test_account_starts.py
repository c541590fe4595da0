"""A command that lacks one right says which in one line, with no traceback; the plugin goes on, and heals when it is given it.

Each command is a process of this checkout with the token of a pod of its account.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from gpu_dra.slices.marks import NODE_CONDITION as CONDITION
from gpu_dra.slices.marks import OURS
from hack.testbed.cluster.waiting import wait_for
from hack.testbed.driver import with_token
from tests.cluster.rights import OWN, SLICES, Rights, a_slice, rights_lab

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LABEL = "nvidia.com/gpu.present"


@pytest.fixture(scope="module")
def rights() -> Iterator[Rights]:
    with rights_lab("ctstarts", "1.37") as made:
        yield made


@pytest.fixture
def lacking(rights: Rights) -> Callable[..., contextlib.AbstractContextManager[None]]:
    """A context in which the role of a component lacks a verb on a resource."""

    @contextlib.contextmanager
    def taken(component: str, verb: str, resource: str) -> Iterator[None]:
        if resource == "events":
            role: tuple[str, ...] = ("-n", "default", "role", f"gpu-dra-{component}-events")
        elif resource in ("daemonsets", "pods"):
            role = ("-n", "gpu-dra", "role", f"gpu-dra-{component}")
        else:
            role = ("clusterrole", f"gpu-dra-{component}")
        before = json.loads(rights.lab.kubectl("get", *role, "-o", "json"))["rules"]
        after = [without(rule, verb) if resource in rule["resources"] else rule for rule in before]
        assert after != before
        set_rules(role, [rule for rule in after if rule["verbs"]])
        try:
            yield
        finally:
            set_rules(role, before)

    def without(rule: dict[str, Any], verb: str) -> dict[str, Any]:
        return {**rule, "verbs": [each for each in rule["verbs"] if each != verb]}

    def set_rules(role: tuple[str, ...], rules: list[Any]) -> None:
        rights.lab.kubectl("patch", *role, "--type=merge", "-p", json.dumps({"rules": rules}))
        time.sleep(0.5)  # the authorizer reads roles from a cache that has no end to wait for

    return taken


@pytest.fixture
def command(rights: Rights, tmp_path: Path) -> Callable[..., tuple[list[str], dict[str, str]]]:
    """Command line and environment of a subcommand, as the account."""

    def made(component: str, *arguments: str) -> tuple[list[str], dict[str, str]]:
        path = tmp_path / f"{component}.kubeconfig"
        token = rights.user(component, node=OWN).token
        path.write_text(with_token(rights.lab.kubectl("config", "view", "--raw", "--flatten", "-o", "json"), token))
        return [sys.executable, "-m", "gpu_dra", *arguments], {**os.environ, "KUBECONFIG": str(path), "NODE_NAME": OWN}

    return made


def finished(command: tuple[list[str], dict[str, str]]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command[0], env=command[1], capture_output=True, text=True, timeout=60, check=False)


def assert_one_line_says(text: str, verb: str, resource: str) -> None:
    assert "Traceback" not in text
    assert [line for line in text.splitlines() if f'cannot {verb} resource "{resource}"' in line], text


def on_the_node(rights: Rights, kind: str) -> bool:
    return any(each["type"] == kind for each in rights.node(OWN)["status"].get("conditions", []))


@pytest.fixture
def full_cluster(rights: Rights) -> Iterator[None]:
    """What an uninstall has to remove: a slice of ours, the label, the condition."""
    slice_ = a_slice(nodeName=OWN)
    slice_["metadata"]["labels"] = dict(OURS)
    rights.admin.may("POST", SLICES, slice_)
    rights.lab.kubectl("label", "node", OWN, f"{LABEL}=true", "--overwrite")
    patch = {"status": {"conditions": [{"type": CONDITION, "status": "True"}]}}
    rights.lab.kubectl("patch", "node", OWN, "--subresource=status", "-p", json.dumps(patch))
    yield
    rights.admin.ask("DELETE", f"{SLICES}/try")


UNINSTALL = (
    "--namespace=gpu-dra",
    "--daemonset=gpu-dra-agent",
    "--daemonset=gpu-dra-detector",
    "--daemonset=gpu-dra-node",
    "--instance=gpu-dra",
    "--clear-label=nvidia.com/gpu.present",
    "--clear-label=nvidia.com/mig.config.state",
    "--timeout=1",
)


@pytest.mark.parametrize(
    ("verb", "resource"),
    [
        ("list", "resourceclaims"),
        ("delete", "daemonsets"),
        ("list", "pods"),
        ("list", "resourceslices"),
        ("delete", "resourceslices"),
        ("list", "nodes"),
        ("get", "nodes"),
        ("update", "nodes"),
        ("update", "nodes/status"),
    ],
)
def test_an_uninstall_that_lacks_a_right_says_which_and_goes_on_when_it_has_it(
    rights, lacking, command, full_cluster, verb, resource
):
    uninstall = command("uninstall", "uninstall", *UNINSTALL)
    with lacking("uninstall", verb, resource):
        done = finished(uninstall)
        assert done.returncode == 1
        assert_one_line_says(done.stderr, verb, resource)
    done = finished(uninstall)
    assert (done.returncode, done.stderr) == (0, "")
    assert LABEL not in rights.node(OWN)["metadata"].get("labels", {})
    assert not on_the_node(rights, CONDITION)
    assert rights.admin.ask("GET", f"{SLICES}/try").code == 404


@pytest.mark.parametrize("verb", ["get", "update"])
def test_a_label_that_cannot_be_set_is_told(rights, lacking, command, verb):
    label = command("detector", "label-node", "--gpu-present", "true")
    with lacking("detector", verb, "nodes"):
        done = finished(label)
        assert done.returncode == 1
        assert_one_line_says(done.stderr, verb, "nodes")
    assert finished(label).returncode == 0
    assert rights.node(OWN)["metadata"]["labels"][LABEL] == "true"
    rights.lab.kubectl("label", "node", OWN, f"{LABEL}-")


def test_a_detector_that_cannot_label_tells_it_and_stays(rights, lacking, command, tmp_path):
    """It tries again a minute later, which the unit tests see to."""
    gpu = tmp_path / "sys/bus/pci/devices/0000:01:00.0"
    gpu.mkdir(parents=True)
    for name, value in (("vendor", "0x10de"), ("class", "0x030200"), ("device", "0x2330")):
        (gpu / name).write_text(value + "\n")
    arguments, environment = command("detector", "detect", "--sys-root", str(tmp_path / "sys"))
    log = tmp_path / "log"
    with lacking("detector", "update", "nodes"), log.open("w") as into:
        process = subprocess.Popen(arguments, env=environment, stderr=into, stdout=into)
        try:
            wait_for("a line", lambda: "cannot update" in log.read_text(), needs=[], deadline_s=20)
            assert_one_line_says(log.read_text(), "update", "nodes")
            assert process.poll() is None
        finally:
            process.terminate()
            process.wait(timeout=10)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plugin:
    """A running plugin with simulated GPUs and directories of its own."""

    process: subprocess.Popen[str]
    log_file: Path
    url: str

    @property
    def log(self) -> str:
        return self.log_file.read_text()

    def readiness(self) -> str:
        """What /readyz says, whatever its status; empty while nobody answers."""
        try:
            with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(f"{self.url}/readyz", timeout=5) as answer:
                text: str = answer.read().decode()
        except urllib.error.HTTPError as error:
            text = error.read().decode()
        except OSError:
            return ""
        return text


@pytest.fixture
def plugin(command: Any, tmp_path: Path) -> Iterator[Callable[[], Plugin]]:
    """Starts it."""
    with contextlib.ExitStack() as stack:

        def start() -> Plugin:
            with socket.create_server(("127.0.0.1", 0)) as free:
                endpoint = f"127.0.0.1:{free.getsockname()[1]}"
            directories = {
                flag: str(tmp_path / name)
                for flag, name in (
                    ("--kubelet-plugins-directory-path", "plugins"),
                    ("--kubelet-registrar-directory-path", "registry"),
                    ("--cdi-root", "cdi"),
                )
            }
            for directory in directories.values():
                Path(directory).mkdir(exist_ok=True)
            flags = [word for pair in directories.items() for word in pair]
            arguments, environment = command(
                "node", "node", "--simulate", "h100x8", "--report-to-node", "true", "--daemonset", "gpu-dra/gpu-dra-node",
                "--http-endpoint", endpoint, *flags,
            )  # fmt: skip
            log = tmp_path / "plugin.log"
            into = stack.enter_context(log.open("w"))
            process = subprocess.Popen(arguments, env=environment, stdout=into, stderr=into, text=True)
            stack.callback(process.wait, timeout=40)
            stack.callback(process.terminate)
            return Plugin(process=process, log_file=log, url=f"http://{endpoint}")

        yield start


def slices_of(rights: Rights) -> list[dict[str, Any]]:
    """Those that have devices."""
    found = rights.admin.may("GET", f"{SLICES}?fieldSelector=spec.driver=gpu.nvidia.com")["items"]
    return [each for each in found if each["spec"].get("devices")]


@pytest.fixture
def bare(rights: Rights) -> Iterator[None]:
    """No slices and no condition, before and after."""

    def clear() -> None:
        rights.admin.may("DELETE", SLICES)
        node = rights.node(OWN)
        others = [each for each in node["status"].get("conditions", []) if each["type"] != CONDITION]
        rights.admin.may("PUT", f"/api/v1/nodes/{OWN}/status", {**node, "status": {**node["status"], "conditions": others}})

    clear()
    yield
    clear()


SLICES_RIGHT = "resourceslices.resource.k8s.io"


@pytest.mark.parametrize(
    ("verb", "resource", "right"),
    [
        ("get", "nodes", "nodes"),
        ("list", "resourceslices", SLICES_RIGHT),
        ("watch", "resourceslices", SLICES_RIGHT),
        ("create", "resourceslices", SLICES_RIGHT),
        ("update", "nodes/status", "nodes/status"),
    ],
)
def test_a_plugin_that_lacks_a_right_says_which_and_heals_when_it_has_it(rights, lacking, plugin, bare, verb, resource, right):
    with lacking("node", verb, resource):
        started = plugin()
        missing = f"missing right: {verb} {right}"
        wait_for("a line", lambda: missing in started.log, needs=[], deadline_s=30)
        if verb in ("get", "list", "create"):  # those without which nothing is published
            wait_for("the reason at /readyz", lambda: missing in started.readiness(), needs=[], deadline_s=15)
        assert "Traceback" not in started.log
        assert started.log.count(missing) < 15
    wait_for("its slices", lambda: slices_of(rights), needs=[], deadline_s=60)
    wait_for("its word on the Node", lambda: on_the_node(rights, CONDITION), needs=[], deadline_s=90)
    assert started.process.poll() is None


def test_a_plugin_that_may_not_change_its_slices_says_so_and_heals(rights, lacking, plugin, bare):
    started = plugin()
    (slice_,) = wait_until_any(lambda: slices_of(rights))
    name = slice_["metadata"]["name"]
    with lacking("node", "update", "resourceslices"):
        slice_["spec"]["pool"]["generation"] += 1
        slice_["spec"]["devices"] = slice_["spec"]["devices"][:1]
        rights.admin.may("PUT", f"{SLICES}/{name}", slice_)
        wait_for("a line", lambda: f"missing right: update {SLICES_RIGHT}" in started.log, needs=[], deadline_s=30)
        assert "Traceback" not in started.log
    wait_for("its slice", lambda: len(slices_of(rights)[0]["spec"]["devices"]) > 1, needs=[], deadline_s=60)


def test_a_plugin_that_may_not_delete_says_so_and_heals(rights, lacking, plugin, bare):
    with lacking("node", "delete", "resourceslices"):
        left = a_slice(name="left", nodeName=OWN)
        left["spec"]["driver"] = "gpu.nvidia.com"
        left["spec"]["pool"]["name"] = OWN
        left["metadata"]["labels"] = dict(OURS)
        rights.admin.may("POST", SLICES, left)
        left = a_slice(name="more", nodeName=OWN) | {"spec": left["spec"]}
        left["metadata"]["labels"] = dict(OURS)
        rights.admin.may("POST", SLICES, left)
        started = plugin()
        wait_for("a line", lambda: f"missing right: delete {SLICES_RIGHT}" in started.log, needs=[], deadline_s=30)
        assert "Traceback" not in started.log
    wait_for("one slice", lambda: len(rights.admin.may("GET", SLICES)["items"]) == 1, needs=[], deadline_s=60)


def test_a_plugin_that_may_not_write_events_says_so_and_offers_its_gpus(rights, lacking, plugin, bare):
    with lacking("node", "create", "events"):
        started = plugin()
        wait_for("a line", lambda: "missing right: create events" in started.log, needs=[], deadline_s=45)
        assert "Traceback" not in started.log
        assert slices_of(rights)


def test_a_plugin_that_may_not_ask_for_its_daemonset_leaves_all_in_place_and_says_so(rights, lacking, plugin, bare):
    """The one it asks for is not there, which it would take for an uninstall."""
    started = plugin()
    wait_until_any(lambda: slices_of(rights))
    with lacking("node", "get", "daemonsets"):
        started.process.terminate()
        started.process.wait(timeout=40)
    assert "missing right: get daemonsets.apps" in started.log
    assert "cannot tell whether this is an uninstall" in started.log
    assert slices_of(rights)


def wait_until_any(found: Callable[[], list[dict[str, Any]]]) -> list[dict[str, Any]]:
    wait_for("anything", lambda: bool(found()), needs=[], deadline_s=60)
    return found()
