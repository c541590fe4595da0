"""Wheel, sums and time of a release."""

import os
import subprocess
import zipfile

import pytest

from hack.release_tools.errors import ReleaseError
from hack.release_tools.main import main, modification_time, sums
from hack.release_tools.wheel import build_wheel

PYPROJECT = """
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"
[project]
name = "tiny"
version = "1.0.0"
requires-python = ">=3.11"
[tool.hatch.build.targets.wheel]
packages = ["src/tiny"]
"""


def a_project(folder, pyproject=PYPROJECT):
    package = folder / "src/tiny"
    package.mkdir(parents=True)
    (folder / "pyproject.toml").write_text(pyproject)
    for name in ("b.py", "__init__.py", "a.py"):
        (package / name).write_text(f'"""{name}"""\n')
    return folder


def test_a_wheel_built_elsewhere_and_later_has_the_same_bytes(tmp_path):
    one, other, dist = a_project(tmp_path / "one"), a_project(tmp_path / "other"), tmp_path / "dist"
    os.utime(other / "src/tiny/a.py", (1_000_000_000, 1_000_000_000))
    (other / "src/tiny/a.py").chmod(0o600)
    dist.mkdir()
    first = build_wheel(one, dist, modified=1_700_000_000)
    first_bytes = first.read_bytes()
    assert build_wheel(other, dist, modified=1_700_000_000).read_bytes() == first_bytes
    assert [path.name for path in dist.iterdir()] == ["tiny-1.0.0-py3-none-any.whl"]
    with zipfile.ZipFile(first) as wheel:
        assert {entry.date_time[:3] for entry in wheel.infolist()} == {(2023, 11, 14)}


def test_a_wheel_that_cannot_be_built_is_one_line(tmp_path):
    with pytest.raises(ReleaseError, match=r"the wheel could not be built: .*version") as failure:
        build_wheel(a_project(tmp_path / "p", PYPROJECT.replace("version =", "vversion =")), tmp_path, modified=1_700_000_000)
    assert "\n" not in str(failure.value)


def test_sums_are_what_sha256sum_checks(tmp_path):
    for name in ("b", "a"):
        (tmp_path / name).write_text(name)
    (tmp_path / "SHA256SUMS").write_text(sums([tmp_path / "b", tmp_path / "a"]))
    done = subprocess.run(
        ["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout == "a: OK\nb: OK\n"


def test_the_given_time_is_taken_before_the_commits(monkeypatch, tmp_path):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    assert modification_time(tmp_path) == 1_700_000_000


@pytest.mark.parametrize("value", ["", "yesterday", "-1", "0", "315532799", "1e9"])
def test_a_time_that_no_archive_can_hold_is_refused(monkeypatch, capsys, tmp_path, value):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", value)
    assert main(["--part", "chart", "--output", str(tmp_path)]) == 1
    assert capsys.readouterr().err.startswith("hack/release: SOURCE_DATE_EPOCH: ")


def test_outside_a_checkout_somebody_must_say_the_time(monkeypatch, tmp_path):
    monkeypatch.delenv("SOURCE_DATE_EPOCH", raising=False)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    with pytest.raises(ReleaseError, match="set SOURCE_DATE_EPOCH"):
        modification_time(tmp_path)
