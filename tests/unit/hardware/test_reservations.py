"""A GPU that is worked on is out of service until its reservation ends, whoever is alive."""

import pytest

from gpu_dra.core.errors import Broken
from gpu_dra.hardware.reservations import Reservation, Reservations

ONE = Reservation(uuid="GPU-1", reason="its MIG geometry is being changed", until=100.0, exclusive=False)


def test_a_reservation_is_read_until_it_ends_or_is_removed(tmp_path):
    reservations = Reservations(tmp_path, boot_id="boot")
    assert reservations.read(now=0) == ()
    reservations.write(ONE)
    assert reservations.read(now=99) == (ONE,)
    assert reservations.read(now=100) == ()
    reservations.remove("GPU-1")
    reservations.remove("GPU-1")
    assert reservations.read(now=0) == ()


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b'{"uuid": "GPU-2"}', b'{"uuid": "GPU-2", "boot_id": "boot", "reason": "", "until": "x", "exclusive": 1}'],
)
def test_a_file_that_cannot_be_understood_reserves_nothing_and_hides_no_other(tmp_path, content):
    reservations = Reservations(tmp_path, boot_id="boot")
    reservations.write(ONE)
    (tmp_path / "reserved/GPU-2.json").write_bytes(content)
    assert reservations.read(now=0) == (ONE,)


def test_a_stamp_tells_that_something_was_written_or_removed(tmp_path):
    reservations = Reservations(tmp_path, boot_id="boot")
    stamps = [reservations.stamp()]
    for change in (lambda: reservations.write(ONE), lambda: reservations.write(ONE), lambda: reservations.remove("GPU-1")):
        change()
        stamps.append(reservations.stamp())
    assert len(set(stamps)) == 4


def test_a_directory_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "reserved").write_text("")
    with pytest.raises(Broken, match=r"cannot write below .*reserved"):
        Reservations(tmp_path, boot_id="boot").write(ONE)


def test_a_reservation_of_another_boot_has_ended(tmp_path):
    """The clock begins anew with each boot, and the hands that worked on the GPU are gone."""
    Reservations(tmp_path, boot_id="before").write(ONE)
    assert Reservations(tmp_path, boot_id="boot").read(now=0) == ()
    assert Reservations(tmp_path, boot_id="before").read(now=0) == (ONE,)
