"""The journal directory."""

import os

import pytest

from gpu_dra.claims.journal import Journal
from gpu_dra.claims.journal_format import Damage, DamagedEntry, encode
from gpu_dra.core.errors import Broken, Refused
from gpu_dra.model.prepared import Phase
from tests.unit.claims.samples import held, prepared, uid


@pytest.fixture
def journal(tmp_path):
    journal = Journal(tmp_path)
    journal.create_directories()
    return journal


@pytest.fixture
def claims(tmp_path):
    return tmp_path / "claims"


def test_a_record_survives_its_writer(journal, tmp_path):
    journal.write(prepared(1, held("gpu-0")))
    assert Journal(tmp_path).read(uid(1)) == prepared(1, held("gpu-0"))


def test_the_other_process_s_change_is_seen(journal, tmp_path):
    """Two plugin processes overlap in a rolling update; memory of either must not hide the other's work."""
    other = Journal(tmp_path)
    journal.write(prepared(1, phase=Phase.INTENT))
    other.read(uid(1))
    journal.write(prepared(1, held("gpu-0")))
    assert other.read(uid(1)) == prepared(1, held("gpu-0"))
    journal.remove(uid(1))
    assert other.read(uid(1)) is None
    assert not other.scan().entries


def test_a_file_that_did_not_change_is_not_read_again(journal, claims):
    """With 100 claims held, a prepare must not open 100 files."""
    for number in range(3):
        journal.write(prepared(number))
    journal.scan()
    for path in claims.iterdir():
        path.chmod(0)
        state = path.stat()
        os.truncate(path, 0)  # what is read now is wrong, and the size gives it away
        path.write_bytes(b"\0" * state.st_size)
        os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))
    assert len(journal.scan().entries) == 3


@pytest.mark.parametrize("name", ["../evil", "..", ".", "", "a/b", "/etc/passwd", "a\0b", "a\n", ".hidden", "x" * 200])
def test_a_uid_that_would_leave_the_directory_is_refused(journal, name):
    for act in (journal.read, journal.remove):
        with pytest.raises(Refused, match="UID"):
            act(name)


@pytest.mark.parametrize("content", [b"", b"{", encode(prepared(2))])
def test_a_damaged_file_costs_one_claim(journal, claims, content):
    """The third is another claim's file under this name, as a careless restore leaves it."""
    journal.write(prepared(7))
    (claims / f"{uid(1)}.json").write_bytes(content)
    scan = journal.scan()
    assert set(scan.entries) == {uid(7)}
    assert set(scan.damaged) == {uid(1)}
    with pytest.raises(DamagedEntry, match=uid(1)):
        journal.read(uid(1))


def test_a_directory_in_place_of_a_file_is_damage_too(journal, claims):
    (claims / f"{uid(1)}.json").mkdir()
    assert set(journal.scan().damaged) == {uid(1)}
    journal.set_aside(uid(1), Damage.UNKNOWN)
    assert journal.read(uid(1)) is None


def test_a_fifo_in_place_of_a_file_is_damage_too_and_holds_nobody_up(journal, claims):
    os.mkfifo(claims / f"{uid(1)}.json")
    with pytest.raises(DamagedEntry):
        journal.read(uid(1))


def test_what_is_set_aside_keeps_its_content_and_tells_its_reason(journal, claims):
    (claims / f"{uid(1)}.json").write_bytes(b"half")
    moved_to = journal.set_aside(uid(1), Damage.TRUNCATED)
    assert moved_to.read_bytes() == b"half"
    assert "truncated" in moved_to.name
    assert not list(claims.iterdir())


def test_strangers_and_leftovers_are_told_from_claims(journal, claims):
    (claims / "README").touch()
    (claims / f".{uid(1)}.json.0badcafe.tmp").touch()
    scan = journal.scan()
    assert (scan.strangers, dict(scan.entries)) == (("README",), {})
    assert journal.leftovers() == {f".{uid(1)}.json.0badcafe.tmp": uid(1)}


def test_a_directory_that_cannot_be_used_is_reported_with_a_way_out(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(Broken, match="must be writable"):
        Journal(tmp_path / "file").scan()
