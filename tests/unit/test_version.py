"""One version for package, image and chart."""

from pathlib import Path

import pytest

import gpu_dra
from gpu_dra.cli.main import main
from hack.release_tools.errors import ReleaseError
from hack.release_tools.versions import declared_versions, the_version

ROOT = Path(__file__).resolve().parents[2]


def a_tree(folder, *, package="1.2.3", changelog="## 1.2.3 (unreleased)\n\n## 1.2.2\n", chart=None):
    for path, text in {
        "pyproject.toml": '[project]\nname = "x"\nversion = "1.2.3"\n',
        "src/gpu_dra/__init__.py": f'"""A package."""\n\n__version__ = "{package}"\n',
        "CHANGELOG.md": f"# Changelog\n\n{changelog}",
        "helm/gpu-dra/Chart.yaml": chart,
    }.items():
        if text is not None:
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text)
    return folder


def test_every_place_of_this_project_says_the_same_version():
    assert set(declared_versions(ROOT).values()) == {gpu_dra.__version__}
    assert the_version(ROOT) == gpu_dra.__version__


def test_the_command_says_its_version(capsys):
    with pytest.raises(SystemExit) as end:
        main(["--version"])
    assert end.value.code == 0
    assert capsys.readouterr().out == f"gpu-dra {gpu_dra.__version__}\n"


def test_the_chart_is_compared_where_there_is_one(tmp_path):
    assert the_version(a_tree(tmp_path)) == "1.2.3"
    a_tree(tmp_path, chart='apiVersion: v2\nname: gpu-dra\nversion: 1.2.3 # of all\nappVersion: "1.2.3"\n')
    assert the_version(tmp_path) == "1.2.3"
    assert len(declared_versions(tmp_path)) == 5


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"package": "1.2.4"}, r"package \(src/gpu_dra/__init__.py\) says 1\.2\.4"),
        ({"changelog": "## 1.3.0\n\n## 1.2.3\n"}, r"CHANGELOG\.md says 1\.3\.0"),
        ({"chart": "version: 1.2.2\nappVersion: 1.2.3\n"}, r"version of helm/gpu-dra/Chart.yaml says 1\.2\.2"),
        ({"chart": "version: 1.2.3\nappVersion: 1.2.2\n"}, r"appVersion of helm/gpu-dra/Chart.yaml says 1\.2\.2"),
        ({"chart": "version: 1.2.3\n"}, "appVersion of helm/gpu-dra/Chart.yaml: no version found"),
        ({"changelog": ""}, r"CHANGELOG\.md: no version found"),
    ],
)
def test_a_place_that_differs_or_says_nothing_stops_the_release_and_is_named(tmp_path, change, place):
    with pytest.raises(ReleaseError, match=place):
        the_version(a_tree(tmp_path, **change))
