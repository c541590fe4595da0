"""How the container image is planned: which engine, which base, which inputs make it another one."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from hack.container import base, build, cli, engines, inputs
from hack.container.base import registry_host
from hack.container.engines import Engine, choose
from hack.testbed.cluster.errors import LabError

REFERENCE = "ghcr.io/gpu-dra/gpu-dra:1"


@pytest.fixture
def project(tmp_path):
    """The least that has every input."""
    for name in (*inputs.FILES, "src/gpu_dra/a.py", "hack/container/fetch.py"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return tmp_path


def chosen(*working, wanted=None):
    return choose(wanted, store=Path("/store"), works=lambda name: name in working, say=print).name


def commands(name):
    engine = Engine(name=name, store=Path("/store"))
    return [
        engine.build(Path("/context"), reference=REFERENCE, arguments={"BASE_IMAGE": "b"}, epoch=7),
        engine.save(REFERENCE, Path("/out.tar")),
    ]


@pytest.mark.parametrize(
    ("image", "host"),
    [
        ("debian", "registry-1.docker.io"),
        ("library/debian:trixie-slim", "registry-1.docker.io"),
        ("docker.io/library/debian", "registry-1.docker.io"),
        ("quay.io/a/b", "quay.io"),
        ("localhost/a", "localhost"),
        ("registry:5000/a/b@sha256:00", "registry:5000"),
    ],
)
def test_the_registry_of_an_image_is_found_as_docker_finds_it(image, host):
    assert registry_host(image) == host


def test_the_first_engine_that_works_is_taken():
    assert chosen("podman", "buildah") == "podman"
    assert chosen("docker", "podman", "buildah") == "docker"


def test_the_engine_that_was_named_is_taken_even_where_others_work():
    assert chosen("docker", "podman", "buildah", wanted="buildah") == "buildah"


def test_a_named_engine_that_does_not_work_is_refused_by_name():
    with pytest.raises(LabError, match="podman does not work here"):
        chosen("buildah", wanted="podman")


@pytest.mark.parametrize("name", engines.NAMES)
def test_every_engine_gets_the_base_and_names_the_image(name):
    building, saving = commands(name)
    assert building[building.index("BASE_IMAGE=b") - 1] == "--build-arg"
    assert building[building.index(REFERENCE) - 1] == "--tag"
    assert building[-1] == "/context"
    assert "7" in building or "SOURCE_DATE_EPOCH=7" in building
    assert any(REFERENCE in word for word in saving)
    assert any("/out.tar" in word for word in saving)


def test_buildah_keeps_its_layers_apart_from_those_of_the_user():
    for command in commands("buildah"):
        assert command[:5] == ["buildah", "--root", "/store/root", "--runroot", "/store/run"]


@pytest.mark.parametrize("changed", ["src/gpu_dra/a.py", "src/gpu_dra/new.py", "uv.lock", "Dockerfile", "hack/container/fetch.py"])
def test_a_changed_input_makes_another_image(project, changed):
    before = inputs.key(project, {})
    (project / changed).write_text("changed")
    assert inputs.key(project, {}) != before


def test_another_base_makes_another_image(project):
    assert inputs.key(project, {"base": "a"}) != inputs.key(project, {"base": "b"})


def test_what_is_no_input_makes_no_other_image(project):
    before = inputs.key(project, {})
    (project / "tests").mkdir()
    (project / "tests/test_a.py").write_text("")
    (project / "src/gpu_dra/__pycache__").mkdir()
    (project / "src/gpu_dra/__pycache__/a.cpython-311.pyc").write_bytes(b"")
    assert inputs.key(project, {}) == before


def test_the_context_holds_the_inputs_with_modes_of_its_own(project, tmp_path):
    (project / "uv.lock").chmod(0o600)
    context = tmp_path / "context"
    inputs.lay_out(project, context)
    assert list(inputs.input_files(context)) == list(inputs.input_files(project))
    assert (context / "uv.lock").stat().st_mode & 0o777 == 0o644


def test_only_the_images_that_were_used_last_stay_in_the_cache(tmp_path):
    for age in range(build.KEPT + 2):
        folder = tmp_path / f"image-{age}"
        folder.mkdir()
        (folder / build.ARCHIVE).write_bytes(b"")
        os.utime(folder, (1000 - age, 1000 - age))
    (tmp_path / "image-base-0").mkdir()
    build.forget_old(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [*(f"image-{age}" for age in range(build.KEPT)), "image-base-0"]


def test_a_time_that_is_no_number_is_refused_with_what_it_takes():
    assert build.source_date_epoch({}) == 0
    assert build.source_date_epoch({"SOURCE_DATE_EPOCH": "1700000000"}) == 1700000000
    with pytest.raises(LabError, match="'yesterday'; it takes seconds"):
        build.source_date_epoch({"SOURCE_DATE_EPOCH": "yesterday"})


def test_a_base_made_here_has_what_the_dockerfile_installs_into_a_public_one():
    dockerfile = (inputs.PROJECT / "Dockerfile").read_text()
    assert f"{' '.join(base.INCLUDED)};" in dockerfile
    assert f"ARG BASE_IMAGE={base.PUBLIC}\n" in dockerfile
    assert f"debian:{base.SUITE}-" in base.PUBLIC


def test_the_build_gets_the_uv_that_developers_have():
    (wanted,) = set(re.findall(r"uv==[\d.]+", (inputs.PROJECT / "hack/venv").read_text()))
    assert wanted in (inputs.PROJECT / "Dockerfile").read_text()


def test_a_tag_that_no_registry_takes_is_refused_in_one_line(capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main(["--tag", "a/b"])
    assert ended.value.code == 2
    assert "'a/b' is no image tag" in capsys.readouterr().err
