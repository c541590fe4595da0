"""The state file of NVIDIA's own driver in our directory."""

import json

import pytest

from gpu_dra.claims.nvidia_checkpoint import find_nvidia_checkpoint


def test_its_claims_are_counted_and_the_file_is_left_alone(tmp_path):
    content = json.dumps({"checksum": 1, "v1": {}, "v2": {"preparedClaims": {"uid-b": {}, "uid-a": {}}, "nodeBootID": "x"}})
    (tmp_path / "checkpoint.json").write_text(content)
    found = find_nvidia_checkpoint(tmp_path)
    assert (found.claims, found.unreadable) == (("uid-a", "uid-b"), "")
    assert (tmp_path / "checkpoint.json").read_text() == content


def test_no_file_is_no_checkpoint(tmp_path):
    assert find_nvidia_checkpoint(tmp_path) is None


@pytest.mark.parametrize("content", ["", "[]", '{"v1": {}}', '{"v2": {"preparedClaims": 3}}'])
def test_a_file_that_cannot_be_understood_does_not_keep_us_from_starting(tmp_path, content):
    (tmp_path / "checkpoint.json").write_text(content)
    assert find_nvidia_checkpoint(tmp_path).unreadable
