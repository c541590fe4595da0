"""What is built, from what, and how often."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from hack.gen.go_modules import go_mod
from hack.testbed.cluster.build import MODULES, build_command, cache_key
from hack.testbed.cluster.cache import make_once
from hack.testbed.cluster.catalog import ETCD, Tool, all_tools, kubernetes

PUBLISHED = """\
module k8s.io/kubernetes

go 1.24.0

replace (
	k8s.io/api => ./staging/src/k8s.io/api
	k8s.io/sample-controller => ./staging/src/k8s.io/sample-controller
)
"""


@pytest.mark.parametrize("tool", all_tools(), ids=lambda tool: tool.name)
def test_the_checked_in_module_pins_the_version_of_the_catalog(tool: Tool) -> None:
    """Somebody who changes a version and forgets hack/gen/go_modules.py would go on building the old one."""
    text = (MODULES / tool.name / "go.mod").read_text()
    assert re.search(rf"{re.escape(tool.module)} {re.escape(tool.version)}$", text.replace(" // indirect", ""), re.MULTILINE)
    assert all(f"\t{path}\n" in text or f"tool {path}\n" in text for path in tool.programs.values())


@pytest.mark.parametrize("tool", all_tools(), ids=lambda tool: tool.name)
def test_with_several_programs_each_is_named_as_go_names_it(tool: Tool) -> None:
    """`go build -o DIR/` takes the last part of the import path."""
    if len(tool.programs) > 1:
        assert all(path.endswith(f"/{name}") for name, path in tool.programs.items())


def test_kubernetes_requires_its_staging_modules_and_replaces_the_samples() -> None:
    text = go_mod(kubernetes("1.34"), PUBLISHED)
    assert "\tk8s.io/api v0.34.4\n" in text
    assert "\tk8s.io/sample-controller => ../none\n" in text
    assert "k8s.io/sample-controller v0" not in text


def test_another_checksum_is_another_entry_in_the_cache(tmp_path: Path) -> None:
    shutil.copytree(MODULES / ETCD.name, tmp_path / ETCD.name)
    before = cache_key(ETCD, tmp_path)
    (tmp_path / ETCD.name / "go.sum").write_text("")
    assert before == cache_key(ETCD)
    assert before != cache_key(ETCD, tmp_path)


def test_a_single_program_gets_its_own_name() -> None:
    """The package of etcd is called server, by its path even v3."""
    command = build_command(ETCD, Path("/out"), go=Path("/go"))
    assert command[command.index("-o") + 1] == "/out/etcd"


def test_kubernetes_says_its_version() -> None:
    assert "gitVersion=v1.37.2" in " ".join(kubernetes("1.37").flags)


def test_an_entry_is_made_once(tmp_path: Path) -> None:
    made: list[Path] = []
    for _ in range(2):
        entry = make_once(tmp_path / "tools" / "entry", made.append, say=print)
    assert entry.is_dir()
    assert len(made) == 1


def test_a_failed_build_leaves_no_entry_that_looks_complete(tmp_path: Path) -> None:
    def fail(folder: Path) -> None:
        (folder / "half").touch()
        raise RuntimeError("no space left")

    with pytest.raises(RuntimeError):
        make_once(tmp_path / "entry", fail, say=print)
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == []
