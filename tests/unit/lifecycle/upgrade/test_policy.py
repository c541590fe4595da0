"""When upgrades may start, and how many nodes may be out."""

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from gpu_dra.core.errors import Refused
from gpu_dra.lifecycle.upgrade.policy import Policy, Window

BERLIN = ZoneInfo("Europe/Berlin")
SATURDAY_NIGHT = Window(cron="0 22 * * 6", seconds=4 * 3600, zone="Europe/Berlin")


def at(text, zone=BERLIN):
    return datetime.fromisoformat(text).replace(tzinfo=zone).timestamp()


@pytest.mark.parametrize(
    ("moment", "is_open"),
    [
        ("2026-12-05 21:59:59", False),
        ("2026-12-05 22:00:00", True),
        ("2026-12-06 01:59:59", True),  # over midnight
        ("2026-12-06 02:00:00", False),
        ("2026-12-06 22:30:00", False),  # a Sunday
    ],
)
def test_a_window_opens_and_closes_on_the_second(moment, is_open):
    assert SATURDAY_NIGHT.is_open(at(moment)) is is_open


def test_a_window_follows_the_clock_of_its_zone_through_the_year():
    window = Window(cron="0 22 * * *", seconds=3600, zone="Europe/Berlin")
    for utc in ("2026-07-01 20:00:00", "2026-12-01 21:00:00"):
        assert window.is_open(at(utc, ZoneInfo("UTC")))


def test_a_window_is_as_long_as_it_says_when_the_clocks_change():
    window = Window(cron="30 1 * * *", seconds=3 * 3600, zone="Europe/Berlin")
    begin = at("2026-03-29 01:30:00")  # at 02:00 it is 03:00
    assert window.is_open(begin + 3 * 3600 - 1)
    assert not window.is_open(begin + 3 * 3600)


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"cron": "every night"}, "cron 'every night'"),
        ({"zone": "Europe/Atlantis"}, "timeZone 'Europe/Atlantis'"),
        ({"zone": "../etc/passwd"}, "timeZone '../etc/passwd'"),
        ({"seconds": 0.0}, "has no length"),
    ],
)
def test_a_window_that_can_never_open_is_refused_by_name(fields, told):
    with pytest.raises(Refused, match=r"upgrade\.windows") as refused:
        Window(**({"cron": "0 22 * * 6", "seconds": 3600.0} | fields))
    assert told in str(refused.value)


@pytest.mark.parametrize(
    ("part", "nodes", "most"), [("25%", 8, 2), ("25%", 3, 1), ("1%", 50, 1), ("50%", 5, 2), (3, 2, 3), (0, 9, 0)]
)
def test_a_part_of_the_nodes_is_rounded_down_and_at_least_one(part, nodes, most):
    assert Policy(max_unavailable=part).most_unavailable(nodes) == most
