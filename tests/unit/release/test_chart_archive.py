"""The chart's archive: Helm's layout, and the same bytes for the same files."""

import io
import os
import tarfile

import pytest

from hack.release_tools.chart_archive import pack_chart
from hack.release_tools.errors import ReleaseError

FILES = {
    "Chart.yaml": "name: tiny\nversion: 1.0.0\n",
    "values.yaml": "a: 1\n",
    "templates/b.yaml": "kind: B\n",
    "templates/_helpers.tpl": "{{/* */}}\n",
    "crds/a.yaml": "kind: A\n",
}


def a_chart(folder, files=FILES):
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def pack(chart):
    return pack_chart(chart, name="tiny", modified=1_700_000_000)


def names(archive):
    with tarfile.open(fileobj=io.BytesIO(archive)) as opened:
        return opened.getnames()


def test_the_layout_is_that_of_helm(tmp_path):
    with tarfile.open(fileobj=io.BytesIO(pack(a_chart(tmp_path)))) as opened:
        entries = opened.getmembers()
        assert opened.extractfile("tiny/values.yaml").read() == b"a: 1\n"
    assert [entry.name for entry in entries] == [
        "tiny/Chart.yaml",
        "tiny/crds/a.yaml",
        "tiny/templates/_helpers.tpl",
        "tiny/templates/b.yaml",
        "tiny/values.yaml",
    ]
    assert {(entry.type, entry.mode, entry.mtime, entry.uid, entry.uname) for entry in entries} == {
        (tarfile.REGTYPE, 0o644, 1_700_000_000, 0, "")
    }


def test_neither_place_nor_time_nor_mode_nor_order_of_making_changes_a_byte(tmp_path):
    one = a_chart(tmp_path / "one")
    other = a_chart(tmp_path / "other", dict(reversed(FILES.items())))
    os.utime(other / "values.yaml", (1, 1))
    (other / "values.yaml").chmod(0o600)
    assert pack(one) == pack(other)


def test_a_changed_file_changes_the_archive(tmp_path):
    before = pack(a_chart(tmp_path))
    (tmp_path / "values.yaml").write_text("a: 2\n")
    assert pack(tmp_path) != before


def test_helmignore_keeps_files_and_folders_out(tmp_path):
    ignore = "# not for users\n*.swp\nci/\n/notes/*.txt\n.helmignore\nvalues/\n"
    more = {"values.yaml.swp": "", "ci/deep/x.yaml": "", "notes/a.txt": "", "notes/a.md": "", ".helmignore": ignore}
    found = names(pack(a_chart(tmp_path, FILES | more)))
    assert set(found) == {f"tiny/{name}" for name in FILES} | {"tiny/notes/a.md"}


@pytest.mark.parametrize("rule", ["!keep.yaml", "a/**/b"])
def test_a_rule_that_is_not_understood_is_an_error_not_a_guess(tmp_path, rule):
    with pytest.raises(ReleaseError, match="not understood"):
        pack(a_chart(tmp_path, FILES | {".helmignore": rule}))


def test_a_folder_without_chart_yaml_is_refused(tmp_path):
    with pytest.raises(ReleaseError, match=r"Chart\.yaml is missing"):
        pack(tmp_path)


def test_a_link_is_refused(tmp_path):
    """It would point to nothing where the archive is unpacked."""
    (a_chart(tmp_path) / "README.md").symlink_to("/etc/hostname")
    with pytest.raises(ReleaseError, match="a link"):
        pack(tmp_path)
