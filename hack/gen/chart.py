#!/usr/bin/env python3
"""Write the table of values in the chart's README from the comments of its values.yaml, and bring the CRDs of api/crds along.

A comment stands right above its key. Every key has one, or holds only keys that have; anything else is an error. A map with a comment
is one value, such as a node selector.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

CHART = Path(__file__).resolve().parents[2] / "helm/gpu-dra"
CRDS = Path(__file__).resolve().parents[2] / "api/crds"
BEGIN, END = "<!-- generated: values -->\n", "<!-- end -->\n"
_KEY = re.compile(r"(?P<indent> *)(?P<key>[A-Za-z]\w*):")


def comments(text: str) -> dict[str, str]:
    """Comment by dotted key; one that an empty line parts from the next key is none."""
    found: dict[str, str] = {}
    above: list[str] = []
    path: list[tuple[int, str]] = []
    for line in text.splitlines():
        stripped = line.strip()
        if stripped.startswith("#"):
            above.append(stripped.removeprefix("#").strip())
            continue
        if match := _KEY.match(line):
            indent = len(match["indent"])
            path = [each for each in path if each[0] < indent] + [(indent, match["key"])]
            if above:
                found[".".join(key for _, key in path)] = " ".join(above)
        above = []
    return found


def rows(values: dict[str, Any], known: dict[str, str], prefix: str = "") -> Iterator[tuple[str, str, str]]:
    """Key, default and meaning of every value. Raises ValueError for one without a comment, and for a section whose own would hide it."""
    for name, value in values.items():
        key = f"{prefix}{name}"
        if key in known and any(other.startswith(f"{key}.") for other in known):
            raise ValueError(f"values.yaml: {key} has a comment and so have its keys; write one or the other")
        if key in known:
            yield key, json.dumps(value), known[key]
        elif isinstance(value, dict) and value:
            yield from rows(value, known, f"{key}.")
        else:
            raise ValueError(f"values.yaml: {key} has no comment above it")


def table(text: str) -> str:
    """The whole table, of the text of a values.yaml."""
    found = [[cell.replace("|", "\\|") for cell in row] for row in rows(yaml.safe_load(text), comments(text))]
    lines = [f"| `{key}` | `{default}` | {meaning} |" for key, default, meaning in found]
    return "\n".join(["| value | default | meaning |", "|---|---|---|", *lines]) + "\n"


def main() -> int:
    readme = CHART / "README.md"
    head, _, rest = readme.read_text().partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not end:
        print(
            f"{readme}: the lines {BEGIN.strip()} and {END.strip()} are gone; put them back where the table belongs",
            file=sys.stderr,
        )
        return 1
    try:
        made = table((CHART / "values.yaml").read_text())
    except ValueError as error:
        print(f"hack/gen/chart.py: {error}", file=sys.stderr)
        return 1
    (CHART / "files/crds.yaml").write_text("---\n".join(path.read_text() for path in sorted(CRDS.glob("*.yaml"))))
    readme.write_text(f"{head}{BEGIN}{made}{END}{tail}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
