#!/usr/bin/env python3
"""Write `hack/go/<tool>/go.mod` and `go.sum` for every tool of the test bed (`hack/testbed/cluster/catalog.py`).

Run it after a version changed there, and commit the result; needs Go and a module proxy. With `--check` nothing is kept and a
difference is an error.

Kubernetes replaces its staging modules by folders that a module zip does not hold. Hence each `k8s.io/<staging>` is required at the
version that matches, v0.<minor>.<patch>, and the sample modules, which nothing imports and which are not all served, are replaced
by an empty module.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from hack.testbed.cluster.catalog import Tool, all_tools  # noqa: E402

MODULES = ROOT / "hack" / "go"
_TOOL_DIRECTIVE_SINCE = (1, 24)  # first Go whose go.mod may hold `tool` lines
_STAGING = re.compile(r"^\s*(k8s\.io/[a-z-]+) => \./staging", re.MULTILINE)
_GO_LINE = re.compile(r"^go (\S+)$", re.MULTILINE)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="fail when a file would change")
    parser.add_argument("tool", nargs="*", help="only these (default: all)")
    options = parser.parse_args()
    tools = [tool for tool in all_tools() if not options.tool or tool.name in options.tool]
    changed = [name for tool in tools for name in _generate(tool, keep=not options.check)]
    for name in changed:
        print(f"{'differs' if options.check else 'written'}: {name}")
    return 1 if options.check and changed else 0


def _generate(tool: Tool, *, keep: bool) -> list[str]:
    """Tidy the module of one tool; returns the files that changed."""
    folder = MODULES / tool.name
    folder.mkdir(parents=True, exist_ok=True)
    files = [folder / "go.mod", folder / "go.sum"]
    before = {file: file.read_bytes() if file.exists() else None for file in files}
    _go(folder.parent / "none", "mod", "download", f"{tool.module}@{tool.version}")
    (folder / "go.mod").write_text(go_mod(tool, _published_go_mod(tool)))
    _go(folder, "mod", "tidy")
    changed = [str(file.relative_to(ROOT)) for file in files if file.read_bytes() != before[file]]
    if not keep:
        for file, content in before.items():
            if content is not None:
                file.write_bytes(content)
    return changed


def _published_go_mod(tool: Tool) -> str:
    described = _go(MODULES / "none", "mod", "download", "-json", f"{tool.module}@{tool.version}")
    return Path(json.loads(described)["GoMod"]).read_text()


def go_mod(tool: Tool, published: str) -> str:
    """The go.mod before `go mod tidy` fills in what is indirect; `published` is the go.mod of the tool's own module."""
    staging = [module for module in _STAGING.findall(published) if tool.module == "k8s.io/kubernetes"]
    samples = [module for module in staging if module.startswith("k8s.io/sample-")]
    matching = tool.version.replace("v1.", "v0.", 1)
    required = [f"{tool.module} {tool.version}", *(f"{module} {matching}" for module in staging if module not in samples)]
    lines = [f"module gpudra.dev/hack/go/{tool.name}", "", f"go {_go_line(published)}", "", "tool ("]
    lines += [f"\t{path}" for path in tool.programs.values()]
    lines += [")", "", "require (", *(f"\t{line}" for line in required), ")"]
    if samples:
        lines += ["", "replace (", *(f"\t{module} => ../none" for module in samples), ")"]
    return "\n".join(lines) + "\n"


def _go_line(published: str) -> str:
    match = _GO_LINE.search(published)
    if match is None:
        raise SystemExit("the published go.mod has no `go` line")
    numbers = tuple(int(part) for part in match[1].split(".")[:2])
    return match[1] if numbers >= _TOOL_DIRECTIVE_SINCE else "{}.{}.0".format(*_TOOL_DIRECTIVE_SINCE)


def _go(folder: Path, *arguments: str) -> str:
    environment = {**os.environ, "GOFLAGS": "", "GOWORK": "off"}
    return subprocess.run(["go", *arguments], cwd=folder, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout


if __name__ == "__main__":
    sys.exit(main())
