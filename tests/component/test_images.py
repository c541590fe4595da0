"""The images of the local cluster are well-formed, reproducible, and hold what injected driver programs need."""

from __future__ import annotations

import hashlib
import io
import json
import platform
import subprocess
import tarfile
from typing import TYPE_CHECKING, Any

import pytest

from hack.testbed.cluster.packages import TO_RUN, ensure_packages
from hack.testbed.elf_stub import architecture, is_static
from hack.testbed.images import PAUSE_REFERENCE, SAMPLE_REFERENCE, build
from hack.testbed.oci import Image, ImageEntry, ImageFile, ImageFolder, ImageLink, archive

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="session")
def archives(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    ensure_packages(TO_RUN, say=print)
    return build(tmp_path_factory.mktemp("images"), say=print)


def read(content: bytes) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(content)) as tar:
        return {member.name: tar.extractfile(member).read() for member in tar if member.isfile()}  # type: ignore[union-attr]


def blob(files: dict[str, bytes], descriptor: dict[str, Any]) -> bytes:
    content = files["blobs/" + descriptor["digest"].replace(":", "/")]
    assert f"sha256:{hashlib.sha256(content).hexdigest()}" == descriptor["digest"]
    assert len(content) == descriptor["size"]
    return content


def layer_of(content: bytes) -> tarfile.TarFile:
    files = read(content)
    manifest = json.loads(blob(files, json.loads(files["index.json"])["manifests"][0]))
    config = json.loads(blob(files, manifest["config"]))
    assert config["rootfs"]["diff_ids"] == [manifest["layers"][0]["digest"]]
    return tarfile.open(fileobj=io.BytesIO(blob(files, manifest["layers"][0])))


def image(entries: dict[str, ImageEntry]) -> Image:
    return Image(reference="gpudra.dev/any:1", architecture="amd64", entries=entries, command=("/any",))


def test_every_blob_is_where_its_digest_says(archives: dict[str, Path]) -> None:
    for path in archives.values():
        assert layer_of(path.read_bytes()).getnames()


def test_an_import_finds_the_full_reference(archives: dict[str, Path]) -> None:
    for reference, path in archives.items():
        index = json.loads(read(path.read_bytes())["index.json"])
        assert index["manifests"][0]["annotations"]["io.containerd.image.name"] == reference


def test_the_order_of_entries_does_not_change_the_image() -> None:
    one, two = ImageFile(content=b"1"), ImageLink(target="one")

    assert archive(image({"bin/one": one, "two": two})) == archive(image({"two": two, "bin/one": one}))


def test_parents_of_files_are_in_the_layer_before_them_and_explicit_modes_win() -> None:
    layer = layer_of(archive(image({"a/b/file": ImageFile(content=b""), "a": ImageFolder(mode=0o1777)})))

    assert [(member.name, member.mode) for member in layer] == [("a", 0o1777), ("a/b", 0o755), ("a/b/file", 0o644)]


def test_building_again_gives_the_same_files(archives: dict[str, Path], tmp_path: Path) -> None:
    again = build(tmp_path, say=print)

    assert {path.name: path.read_bytes() for path in again.values()} == {path.name: path.read_bytes() for path in archives.values()}


def test_pause_needs_nothing_else_in_its_image(archives: dict[str, Path]) -> None:
    layer = layer_of(archives[PAUSE_REFERENCE].read_bytes())
    program = layer.extractfile("pause")

    assert layer.getnames() == ["pause"]
    assert program is not None
    assert is_static(program.read())


def test_the_sample_runs_programs_that_need_the_c_library(archives: dict[str, Path], tmp_path: Path) -> None:
    """Injected programs such as nvidia-smi are dynamic; the loader path and the library must both fit. Needs root for chroot."""
    with layer_of(archives[SAMPLE_REFERENCE].read_bytes()) as layer:
        layer.extractall(tmp_path, filter="fully_trusted")
    library = f"usr/lib/{architecture(platform.machine()).triplet}/libinjected.so.1"
    (tmp_path / "library.c").write_text("int answer(void) { return 42; }\n")
    (tmp_path / "main.c").write_text(
        '#include <stdio.h>\nint answer(void);\nint main(void) { return printf("%d\\n", answer()) < 0; }\n'
    )
    compiler = ["cc", "-o"]
    subprocess.run([*compiler, library, "-shared", "-fPIC", "-Wl,-soname,libinjected.so.1", "library.c"], cwd=tmp_path, check=True)
    subprocess.run([*compiler, "usr/bin/injected", "main.c", library], cwd=tmp_path, check=True)

    result = subprocess.run(
        ["chroot", tmp_path, "/bin/sh", "-c", "injected && id -un"], capture_output=True, text=True, check=False
    )

    assert result.stdout == "42\nroot\n", result.stderr
