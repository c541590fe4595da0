"""PCI addresses, which NVML, nvidia-smi and sysfs each spell in their own way."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Self

_ADDRESS = re.compile(r"(?:(?P<domain>[0-9a-fA-F]{4,8}):)?(?P<bus>[0-9a-fA-F]{2}):(?P<device>[0-9a-fA-F]{2})\.(?P<function>[0-7])")


@dataclass(frozen=True, slots=True, order=True)
class PciAddress:
    """Domain, bus, device and function of a PCI function.

    `str()` gives the sysfs spelling (`0000:65:00.0`), which is also the form of the `resource.kubernetes.io/pciBusID` attribute.
    """

    domain: int
    bus: int
    device: int
    function: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a 4- or 8-digit-domain address, upper or lower case. Raises ValueError for anything else."""
        match = _ADDRESS.fullmatch(text.strip())
        if match is None:
            raise ValueError(f"{text!r} is not a PCI address such as 0000:65:00.0")
        return cls(int(match["domain"] or "0", 16), int(match["bus"], 16), int(match["device"], 16), int(match["function"], 16))

    def __str__(self) -> str:
        return f"{self.domain:04x}:{self.bus:02x}:{self.device:02x}.{self.function:x}"
