"""docs/migration.md says what the product does: names, values, selectors and refusals in it exist."""

import re
from pathlib import Path

import pytest
import yaml

from gpu_dra.claims.config import API_VERSION, check_configs
from gpu_dra.core.errors import Refused
from gpu_dra.model.claim import AllocationResult, ConfigSource, OpaqueConfig
from tests.support.cel import Selector

ROOT = Path(__file__).resolve().parents[3]
TEXT = (ROOT / "docs/migration.md").read_text()
VALUES = ROOT / "helm/gpu-dra/values.yaml"
DEVICE = {
    "attributes": {
        "type": {"string": "mig"},
        "profile": {"string": "1g.5gb"},
        "productName": {"string": "NVIDIA H100 80GB HBM3"},
        "architecture": {"string": "Hopper"},
    },
    "capacity": {"memory": {"value": "40960Mi"}},
}
LONG = {"a.": 'device.attributes["gpu.nvidia.com"].', "c.": 'device.capacity["gpu.nvidia.com"].'}


def rows(heading):
    """Cells of the tables below a heading, up to the next one, without their head and rule."""
    section = TEXT.partition(f"\n{heading}\n")[2]
    assert section, heading
    lines = [line for line in re.split(r"\n##+ ", section)[0].splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def quoted(cell):
    return re.findall(r"`([^`]+)`", cell)


def selectors():
    every = [code for cell in (row[1] for row in rows("### Node labels become selectors")) for code in quoted(cell)]
    return [code for code in every if code[:2] in LONG]


def refusal(kind, **fields):
    config = OpaqueConfig(
        source=ConfigSource.CLAIM, requests=("r",), path="p", parameters={"apiVersion": API_VERSION, "kind": kind, **fields}
    )
    with pytest.raises(Refused) as error:
        check_configs([config], AllocationResult(request="r", pool="n", device="gpu-0"), device_type="gpu")
    return str(error.value)


@pytest.mark.parametrize(
    ("feature", "parameters"),
    [
        ("compute domains", {"kind": "ComputeDomainChannelConfig", "domainID": "d"}),
        ("time-slicing", {"kind": "GpuConfig", "sharing": {"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": "Short"}}}),
        ("MPS", {"kind": "GpuConfig", "sharing": {"strategy": "MPS"}}),
    ],
)
def test_the_refusals_are_the_words_that_a_person_sees(feature, parameters):
    [text] = [row[1] for row in rows("## Not supported yet") if row[0].startswith(feature)]
    pieces = [piece.strip() for piece in quoted(text)[0].split("…") if piece.strip()]
    message = refusal(**parameters)
    assert all(piece in message for piece in pieces), message


@pytest.mark.parametrize("feature", ["compute domains", "time-slicing", "MPS", "VFIO passthrough", "dynamic MIG"])
def test_what_is_not_supported_is_said_first(feature):
    assert any(row[0].startswith(feature) for row in rows("## Not supported yet"))
    assert TEXT.index("## Not supported yet") < TEXT.index("## From NVIDIA")


def test_classes_that_it_names_exist():
    classes = {
        each["metadata"]["name"]
        for file in (ROOT / "deviceclasses").glob("*.yaml")
        for each in yaml.safe_load_all(file.read_text())
    }
    named = set(re.findall(r"class(?:es)? `([a-z0-9.-]+)`", TEXT))
    assert {"gpu.nvidia.com", "mig.nvidia.com", "gpu-h100", "mig-1g"} <= named
    assert named <= classes


@pytest.mark.parametrize("selector", [each for each in selectors() if ".major()" not in each])  # the oracle has no semver
def test_selectors_select(selector):
    expression = LONG[selector[:2]] + selector[2:]
    assert Selector(expression).matches(DEVICE)


def test_files_that_it_names_exist():
    for name in {*re.findall(r"`((?:demo|hack|docs)/[\w./-]+)`", TEXT), *re.findall(r"\]\(([\w./-]+\.md)", TEXT)}:
        assert (ROOT / name).exists() or (ROOT / "docs" / name).exists(), name


def test_values_that_it_calls_ours_are_in_the_chart():
    named = {code.partition(":")[0].partition("=")[0] for row in rows("### Chart values") for code in quoted(row[1])}
    named |= set(re.findall(r"`((?:node|detector|deviceClasses|rbac)\.[\w.]+)", TEXT))
    assert {"image.repository", "node.driverRoot"} <= named
    values = yaml.safe_load(VALUES.read_text())
    for name in sorted(named):
        found = values
        for part in name.split("."):
            assert isinstance(found, dict), name
            assert part in found, name
            found = found[part]
