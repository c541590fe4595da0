"""The mock-host command says what it did, and why it did not, in a line."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hack.testbed.mock_host_command import main

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def laid(tmp_path: Path) -> Path:
    """A tree laid by the command itself. Needs root for its device nodes and a C compiler for the mocked library."""
    into = tmp_path / "host"
    assert main(["lay", "--profile", "t4x1", "--into", str(into), "--driver-version", "580.142", "--hook"]) == 0
    return into


def test_status_says_what_a_laid_tree_is(laid: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["status", "--from", str(laid)])

    facts = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines() if "  " in line)
    assert (facts["profile"], facts["driver"], facts["gpus"]) == ("t4x1", "580.142", "0000:00:1e.0")
    assert (laid / "root/usr/bin/nvidia-cdi-hook").exists()


def test_another_seed_gives_the_gpu_another_uuid(laid: Path, tmp_path: Path) -> None:
    main(["lay", "--profile", "t4x1", "--into", str(tmp_path / "other"), "--seed", "node-b"])

    information = "proc/driver/nvidia/gpus/0000:00:1e.0/information"
    assert (laid / information).read_text() != (tmp_path / "other" / information).read_text()


def test_a_directory_without_a_tree_is_one_line_and_a_failure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", "--from", str(tmp_path)]) == 1
    assert capsys.readouterr().err.startswith(f"mock-host: {tmp_path} holds no mock host")


def test_an_unknown_profile_is_answered_with_the_known_ones(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["lay", "--profile", "h100x9", "--into", str(tmp_path)])

    assert "h100x8" in capsys.readouterr().err
