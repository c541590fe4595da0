"""One address, however NVML, nvidia-smi or sysfs spell it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu_dra.model.pci import PciAddress


@pytest.mark.parametrize("text", ["0000:1b:00.0", "00000000:1B:00.0", "1b:00.0", " 0000:1B:00.0\n"])
def test_every_spelling_is_the_same_address(text):
    assert str(PciAddress.parse(text)) == "0000:1b:00.0"


@pytest.mark.parametrize("text", ["", "GPU-1", "0000:1b:00", "0000:1b:00.8", "000:1b:00.0", "0000:1b:00.0.0"])
def test_anything_else_is_refused(text):
    with pytest.raises(ValueError, match="not a PCI address"):
        PciAddress.parse(text)


@settings(deadline=None)
@given(st.integers(0, 0xFFFFFFFF), st.integers(0, 0xFF), st.integers(0, 0x1F), st.integers(0, 7))
def test_what_is_printed_is_read_back(domain, bus, device, function):
    address = PciAddress(domain, bus, device, function)
    assert PciAddress.parse(str(address)) == address
