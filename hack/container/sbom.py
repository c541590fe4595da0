"""The software bill of materials of an image: installed Python distributions and Debian packages, as CycloneDX 1.6 JSON.

Sources: CycloneDX 1.6, package URLs (purl) types `pypi` and `deb`, core metadata of Python packages, dpkg's status file. The same
input gives the same bytes: no time, no serial number. Needs the standard library only.
"""

from __future__ import annotations

import json
import re
from email.parser import HeaderParser
from pathlib import Path
from typing import Any
from urllib.parse import quote

PRODUCT = "gpu-dra"
Component = dict[str, Any]


def write_sbom(path: Path, *, site: Path, dpkg: Path) -> None:
    """Describe `site` (a site-packages folder) and, if it is there, `dpkg` (a status file)."""
    packages = debian_packages(dpkg.read_text(encoding="utf-8")) if dpkg.is_file() else []
    metadata = [file.read_text(encoding="utf-8") for file in site.glob("*.dist-info/METADATA")]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document(metadata, packages), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def document(metadata: list[str], packages: list[Component]) -> dict[str, Any]:
    """The bill: the product as its subject, and everything installed with it, in order."""
    distributions = [python_distribution(text) for text in metadata]
    subject = next(found for found in distributions if found["name"] == PRODUCT)
    rest = [found for found in (*distributions, *packages) if found is not subject]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": {**subject, "type": "application"}},
        "components": sorted(rest, key=lambda found: found["purl"]),
    }


def python_distribution(text: str) -> Component:
    """A component from a METADATA file. Names are normalised as purl and PyPI want them."""
    headers = HeaderParser().parsestr(text)
    name, version = re.sub(r"[-_.]+", "-", headers["Name"]).lower(), headers["Version"]
    purl = f"pkg:pypi/{name}@{quote(version)}"
    component: Component = {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl}
    if expression := headers["License-Expression"]:
        component["licenses"] = [{"expression": expression}]
    elif license_name := _license_name(headers["License"], headers.get_all("Classifier") or []):
        component["licenses"] = [{"license": {"name": license_name}}]
    return component


def debian_packages(status: str) -> list[Component]:
    """Components from dpkg's status file; packages that are only configured are not there."""
    found = []
    for paragraph in status.split("\n\n"):
        fields = HeaderParser().parsestr(paragraph)
        if fields["Status"] != "install ok installed":
            continue
        name, version, arch = fields["Package"], fields["Version"], fields["Architecture"]
        purl = f"pkg:deb/debian/{quote(name)}@{quote(version)}?arch={arch}"
        found.append({"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl})
    return found


def _license_name(text: str | None, classifiers: list[str]) -> str | None:
    """A short License field, else the licence classifier: some distributions put the whole text into the field."""
    if text and "\n" not in text and len(text) < 60:
        return text
    return next((line.rpartition("::")[2].strip() for line in classifiers if line.startswith("License ::")), None)
