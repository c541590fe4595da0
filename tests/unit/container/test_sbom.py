"""The bill of materials names what is installed, in the words of CycloneDX and purl."""

from __future__ import annotations

from hack.container.sbom import debian_packages, document, python_distribution

PRODUCT = "Metadata-Version: 2.4\nName: gpu-dra\nVersion: 1\nLicense-Expression: Apache-2.0\n"
STATUS = """Package: libc6
Status: install ok installed
Architecture: amd64
Version: 2.41-12+deb13u1

Package: gone
Status: deinstall ok config-files
Architecture: all
Version: 1
"""


def test_a_distribution_has_its_normalised_name_and_its_licence():
    found = python_distribution("Name: Typing_Extensions\nVersion: 4.1\nLicense-Expression: PSF-2.0\n")
    assert found["purl"] == "pkg:pypi/typing-extensions@4.1"
    assert found["licenses"] == [{"expression": "PSF-2.0"}]


def test_a_whole_licence_text_is_not_taken_for_its_name():
    text = "Name: a\nVersion: 1\nLicense: Permission is granted\n        to everybody\nClassifier: License :: OSI Approved :: MIT License\n"
    assert python_distribution(text)["licenses"] == [{"license": {"name": "MIT License"}}]


def test_a_distribution_without_a_licence_is_listed_all_the_same():
    assert "licenses" not in python_distribution("Name: a\nVersion: 1\n")


def test_a_debian_package_that_is_only_configured_is_not_there():
    assert [found["purl"] for found in debian_packages(STATUS)] == ["pkg:deb/debian/libc6@2.41-12%2Bdeb13u1?arch=amd64"]


def test_the_product_is_the_subject_and_the_order_of_the_rest_is_fixed():
    metadata = ["Name: b\nVersion: 1\n", PRODUCT, "Name: a\nVersion: 1\n"]
    bill = document(metadata, [])
    assert bill["metadata"]["component"]["name"] == "gpu-dra"
    assert [found["name"] for found in bill["components"]] == ["a", "b"]
    assert bill == document(list(reversed(metadata)), [])
