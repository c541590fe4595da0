"""Driver versions as NVML prints them, and as the API server takes them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_dra.model import semver


@pytest.mark.parametrize(
    ("driver", "published"),
    [
        ("580.126.09", "580.126.9"),
        ("580.126.20", "580.126.20"),
        ("595.58.03", "595.58.3"),
        ("580.142", "580.142.0"),
        ("580", "580.0.0"),
        ("580.00.00", "580.0.0"),
        ("6.19.14.31400000", "6.19.14+31400000"),
        (" 580.126.09\n", "580.126.9"),
    ],
)
def test_a_driver_version_becomes_the_form_that_nvidias_driver_publishes(driver, published):
    assert semver.normalise(driver) == published


@pytest.mark.parametrize(
    "text", ["", ".", "580.", ".126", "580..9", "v580.126", "580.126.09-grid", "N/A", "5٨0.1", "-1.0", "1.2.3\x00", "9" * 21]
)
def test_what_is_not_a_version_of_numbers_is_refused_with_its_text(text):
    with pytest.raises(ValueError, match="version"):
        semver.normalise(text)


@given(st.text())
def test_no_text_can_do_worse_than_a_value_error(text):
    """NVIDIA's driver dies on a version its parser cannot take; here it costs one attribute."""
    try:
        result = semver.normalise(text)
    except ValueError:
        return
    assert semver.is_semver(result)


@given(st.lists(st.integers(min_value=0, max_value=10**6), min_size=1, max_size=6), st.integers(min_value=0, max_value=3))
def test_zero_padding_never_changes_the_result(numbers, padding):
    plain = ".".join(str(number) for number in numbers)
    padded = ".".join("0" * padding + str(number) for number in numbers)
    assert semver.normalise(padded) == semver.normalise(plain)
    assert semver.is_semver(semver.normalise(plain))


@pytest.mark.parametrize("text", ["1.2.3", "0.0.0", "1.2.3-rc.1", "1.2.3+build.007", "1.2.3-0a+x"])
def test_strict_semver_is_recognised(text):
    assert semver.is_semver(text)


@pytest.mark.parametrize("text", ["1.2", "01.2.3", "1.2.3-", "1.2.3-01", "1.2.3+", "v1.2.3", "1.2.3\n", "1.2.3.4", "580.126.09"])
def test_what_the_api_server_refuses_is_not_semver(text):
    assert not semver.is_semver(text)
