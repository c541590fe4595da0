"""Quantities in the form Kubernetes stores them."""

import re
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_dra.model import quantity

MIB = 1024**2


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (81559 * MIB, "81559Mi"),
        (40960 * MIB, "40Gi"),
        (189471 * MIB, "189471Mi"),
        (0, "0"),
        (7, "7"),
        (1000, "1k"),
        (1023, "1023"),
        (1024, "1Ki"),
        (1025, "1025"),
        (2000, "2k"),
        (3_000_000, "3M"),
        (1024**6 * 5, "5Ei"),
        (1024**7, "1024Ei"),
        (-2048, "-2Ki"),
        (-1000, "-1k"),
    ],
)
def test_an_integer_is_written_as_the_api_server_stores_it(value, text):
    assert quantity.canonical(value) == text


@given(st.integers(min_value=-(2**63), max_value=2**63 - 1))
def test_what_is_written_reads_back_as_the_same_value(value):
    assert quantity.parse(quantity.canonical(value)) == value


@given(st.integers(min_value=1024, max_value=2**63 - 1))
def test_no_written_quantity_could_take_a_larger_suffix(value):
    match = re.fullmatch(r"(?P<number>\d+)(?P<suffix>[kKMGTPE]i?)?", quantity.canonical(value))
    assert match is not None
    assert int(match["number"]) % (1024 if value % 1024 == 0 else 1000) != 0 or match["suffix"] == "Ei"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1.5Gi", Fraction(3 * 1024**3, 2)),
        ("100m", Fraction(1, 10)),
        ("1k", Fraction(1000)),
        ("2e3", Fraction(2000)),
        ("2E-3", Fraction(1, 500)),
        ("1E", Fraction(10**18)),
        ("1Ei", Fraction(1024**6)),
        (".5", Fraction(1, 2)),
        ("5.", Fraction(5)),
        ("+1", Fraction(1)),
    ],
)
def test_every_form_of_the_api_is_read(text, value):
    assert quantity.parse(text) == value


@pytest.mark.parametrize(
    "text", ["", "Gi", "1 Gi", "1gi", "1K", "0x10", "1e", "1e99999999", "1Gi\n", "--1", "1.2.3", "٣Gi", "9" * 5000]
)
def test_what_is_no_quantity_is_refused_at_once(text):
    with pytest.raises(ValueError, match="is not a quantity"):
        quantity.parse(text)
