"""The table of values in the chart's README says something of every value, or is not made."""

import re

import pytest

from hack.gen.chart import table
from tests.helm.conftest import CHART

README = (CHART / "README.md").read_text()


def test_the_readme_holds_the_table_of_the_values():
    assert table((CHART / "values.yaml").read_text()) in README


def test_a_value_is_told_with_its_default_and_its_comment():
    assert table("a:\n  # Long\n  # text.\n  b: x\n").splitlines()[-1] == '| `a.b` | `"x"` | Long text. |'


def test_a_map_with_a_comment_is_one_value():
    assert table("# Labels.\na:\n  b: x\n").splitlines()[-1] == '| `a` | `{"b": "x"}` | Labels. |'


def test_a_bar_does_not_end_its_cell():
    assert table("# This | that.\na: x|y\n").splitlines()[-1] == r'| `a` | `"x\|y"` | This \| that. |'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: 1\n", "a has no comment"),
        ("# Of nothing.\n\na: 1\n", "a has no comment"),
        ("# One.\na: 1\nb: 2\n", "b has no comment"),
        ("s:\n  # One.\n  a: 1\n  b: 2\n", "s.b has no comment"),
        ("# Section.\ns:\n  # One.\n  a: 1\n  b: 2\n", "s has a comment and so have its keys"),
    ],
)
def test_a_value_of_which_nothing_would_be_told_is_an_error(text, said):
    with pytest.raises(ValueError, match=re.escape(said)):
        table(text)


@pytest.mark.parametrize(
    "command",
    [
        "helm install gpu-dra helm/gpu-dra -n gpu-dra --create-namespace\n",
        "kubectl label namespace gpu-dra pod-security.kubernetes.io/enforce=privileged\n",
        "helm uninstall gpu-dra -n gpu-dra --no-hooks\n",
    ],
)
def test_the_readme_gives_the_commands_that_a_cluster_needs(command):
    assert f"    {command}" in README


def test_every_example_is_told_of_in_the_readme():
    assert {path.name for path in (CHART / "examples").iterdir()} == set(re.findall(r"`([a-z0-9-]+\.yaml)`", README))
