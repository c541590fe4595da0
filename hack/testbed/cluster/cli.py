"""The command line of `hack/cluster`: parse, call `lab`, print. Results go to standard output, progress and errors to standard error."""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from hack.testbed.cluster import status, teardown
from hack.testbed.cluster.bootstrap import toolbox
from hack.testbed.cluster.catalog import DEFAULT_KUBERNETES, KUBERNETES_VERSIONS
from hack.testbed.cluster.errors import LabError, say_on_stderr
from hack.testbed.cluster.folder import LabFolder
from hack.testbed.cluster.lab import Lab, require_root
from hack.testbed.cluster.spec import NodeSpec, Wishes

_DEFAULT_LAB = "demo"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; its status, or 1 with one line on standard error."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    # Everything after the first `--` is a command for the node, options and all.
    own, inner = (given[: given.index("--")], given[given.index("--") + 1 :]) if "--" in given else (given, [])
    try:
        options = _parser().parse_args(own)
        options.inner = inner
        return int(options.run(options) or 0)
    except (LabError, OSError) as error:
        print(f"hack/cluster: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("hack/cluster: interrupted; `up` goes on from here, `down` takes everything away", file=sys.stderr)
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="hack/cluster",
        description="A real Kubernetes on this machine, each node in namespaces of its own and, if wanted, with mocked GPUs.",
        epilog="State: $GPU_DRA_LABS (default /var/tmp/gpu-dra-labs). Built tools: $GPU_DRA_CACHE (default ~/.cache/gpu-dra).",
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    lab = argparse.ArgumentParser(add_help=False)
    lab.add_argument("--name", default=_DEFAULT_LAB, metavar="LAB", help=f"which lab (default {_DEFAULT_LAB})")
    node = argparse.ArgumentParser(add_help=False, parents=[lab])
    node.add_argument("node", metavar="NODE")
    _add_lab_commands(commands, lab)
    _add_node_commands(commands, node)
    build = commands.add_parser("build", help="get and build the tools of these Kubernetes versions, and nothing else")
    build.add_argument(
        "versions", nargs="*", metavar="VERSION", help=f"{', '.join(KUBERNETES_VERSIONS)} (default {DEFAULT_KUBERNETES})"
    )
    build.set_defaults(run=_build)
    commands.add_parser("list", help="names of the labs that exist").set_defaults(run=_list)
    return parser


def _add_lab_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser], lab: argparse.ArgumentParser) -> None:
    up = commands.add_parser("up", parents=[lab], help="bring a lab up, or what is missing of it")
    up.add_argument("--kubernetes", choices=sorted(KUBERNETES_VERSIONS), help=f"default {DEFAULT_KUBERNETES}")
    up.add_argument("--feature-gates", metavar="A=true,B=false", help="for every Kubernetes program; an unknown gate stops it")
    up.add_argument("--runtime-config", metavar="GROUP/VERSION=true", help="for the API server")
    up.add_argument(
        "--node", action="append", type=NodeSpec.parse, metavar="NAME[=PROFILE[+hook]]", help="repeatable; default node-a"
    )
    up.set_defaults(run=_up)
    down = commands.add_parser("down", parents=[lab], help="take a lab away; leaves nothing behind, also after a crash")
    down.set_defaults(run=_down)
    show = commands.add_parser("status", parents=[lab], help="what runs, and where")
    show.add_argument("--json", action="store_true", help="for programs")
    show.set_defaults(run=_status)
    commands.add_parser("kubeconfig", parents=[lab], help="print the path of an administrator's").set_defaults(run=_kubeconfig)
    commands.add_parser("kubectl", parents=[lab], help="run kubectl as administrator: kubectl -- get nodes").set_defaults(
        run=_kubectl
    )
    load = commands.add_parser("load-image", parents=[lab], help="import an image archive on every node")
    load.add_argument("archive", type=Path, metavar="TAR")
    load.set_defaults(run=_load_image)
    commands.add_parser("stop-apiserver", parents=[lab], help="take the API server away").set_defaults(run=_stop_apiserver)
    commands.add_parser("start-apiserver", parents=[lab], help="and bring it back").set_defaults(run=_start_apiserver)
    logs = commands.add_parser("logs", parents=[lab], help="print a log; without a component, list them")
    logs.add_argument("component", nargs="?", metavar="COMPONENT")
    logs.set_defaults(run=_logs)


def _add_node_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser], node: argparse.ArgumentParser) -> None:
    enter = commands.add_parser("node-exec", parents=[node], help="run a command inside a node: node-exec NODE -- CMD")
    enter.add_argument("--detach", metavar="PROCESS", help="in the background, under this name")
    enter.add_argument("--log", type=Path, metavar="FILE", help="with --detach (default: in the lab's log folder)")
    enter.set_defaults(run=_node_exec)
    stop = commands.add_parser("node-stop", parents=[node], help="stop what node-exec --detach started")
    stop.add_argument("process", metavar="PROCESS")
    stop.add_argument(
        "--signal", default="TERM", choices=("TERM", "INT", "HUP", "KILL"), help="KILL follows after 10 s (default TERM)"
    )
    stop.set_defaults(run=_node_stop)
    commands.add_parser("reboot", parents=[node], help="pull the plug of a node and boot it").set_defaults(run=_reboot)
    restart = commands.add_parser("restart-kubelet", parents=[node], help="restart a node's kubelet; its pods go on")
    restart.set_defaults(run=_restart_kubelet)


def _up(options: argparse.Namespace) -> None:
    wishes = Wishes(
        name=options.name,
        kubernetes=options.kubernetes,
        nodes=tuple(options.node) if options.node else None,
        feature_gates=options.feature_gates,
        runtime_config=options.runtime_config,
    )
    lab = Lab.up(wishes)
    print("\n".join(status.lines(status.describe(lab))))


def _down(options: argparse.Namespace) -> None:
    require_root()
    teardown.down(options.name, say=say_on_stderr)


def _status(options: argparse.Namespace) -> int:
    described = status.describe(Lab.open(options.name))
    print(json.dumps(described, indent=2) if options.json else "\n".join(status.lines(described)))
    return 0 if status.healthy(described) else 1


def _kubeconfig(options: argparse.Namespace) -> None:
    print(Lab.open(options.name).kubeconfig)


def _kubectl(options: argparse.Namespace) -> int:
    lab = Lab.open(options.name)
    return subprocess.run([lab.toolbox["kubectl"], f"--kubeconfig={lab.kubeconfig}", *options.inner], check=False).returncode


def _load_image(options: argparse.Namespace) -> None:
    Lab.open(options.name).load_image(options.archive)


def _stop_apiserver(options: argparse.Namespace) -> None:
    Lab.open(options.name).stop_apiserver()


def _start_apiserver(options: argparse.Namespace) -> None:
    Lab.open(options.name).start_apiserver()


def _logs(options: argparse.Namespace) -> None:
    folder = LabFolder.of(options.name)
    known = sorted(path.stem for path in folder.logs.glob("*.log"))
    if options.component is None:
        print("\n".join(f"{name:<32}{folder.log(name)}" for name in known))
    elif options.component in known:
        print(folder.log(options.component).read_text(errors="replace"), end="")
    else:
        raise LabError(f"lab {options.name} has no log {options.component!r}; it has {', '.join(known) or 'none'}")


def _node_exec(options: argparse.Namespace) -> int:
    if not options.inner:
        raise LabError("no command: write it after two dashes, as in `hack/cluster node-exec node-a -- nvidia-smi -L`")
    lab = Lab.open(options.name)
    if options.detach is None:
        return subprocess.run(lab.node(options.node).enter_command(*options.inner), check=False).returncode
    log = None if options.log is None else options.log.absolute()
    process = lab.start_in_node(options.node, options.detach, options.inner, directory=Path.cwd(), log=log)
    print(process.pid)
    return 0


def _node_stop(options: argparse.Namespace) -> None:
    Lab.open(options.name).stop_in_node(options.node, options.process, number=signal.Signals[f"SIG{options.signal}"])


def _reboot(options: argparse.Namespace) -> None:
    Lab.open(options.name).reboot(options.node)


def _restart_kubelet(options: argparse.Namespace) -> None:
    Lab.open(options.name).restart_kubelet(options.node)


def _build(options: argparse.Namespace) -> None:
    for minor in options.versions or [DEFAULT_KUBERNETES]:
        if minor not in KUBERNETES_VERSIONS:
            raise LabError(f"Kubernetes {minor!r} is not built here; choose of {', '.join(KUBERNETES_VERSIONS)}")
        for folder in toolbox(minor, say=say_on_stderr).folders:
            print(folder)


def _list(_: argparse.Namespace) -> None:
    for name in status.names():
        print(name)
