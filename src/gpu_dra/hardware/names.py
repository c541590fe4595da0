"""Spell NVML's numbers as NVIDIA's own driver publishes them, so that selectors written for it keep working.

Source: `nvml.h` for the numbers, go-nvlib `pkg/nvlib/device` for the words. A number that is not here has no word: the attribute is
left out.
"""

from __future__ import annotations

from typing import Final

BRANDS: Final = {
    1: "Quadro",
    2: "Tesla",
    3: "NVS",
    4: "Grid",
    5: "GeForce",
    6: "Titan",
    7: "NvidiaVApps",
    8: "NvidiaVPC",
    9: "NvidiaVCS",
    10: "NvidiaVWS",
    11: "NvidiaCloudGaming",
    12: "QuadroRTX",
    13: "NvidiaRTX",
    14: "Nvidia",
    15: "GeForceRTX",
    16: "TitanRTX",
}
"""`nvmlBrandType_t`."""

ARCHITECTURES: Final = {
    2: "Kepler",
    3: "Maxwell",
    4: "Pascal",
    5: "Volta",
    6: "Turing",
    7: "Ampere",
    8: "Ada Lovelace",
    9: "Hopper",
    10: "Blackwell",
    13: "Rubin",
}
"""`nvmlDeviceArchitecture_t`."""

ADDRESSING_MODES: Final = {0: "None", 1: "HMM", 2: "ATS"}
"""`nvmlDeviceAddressingMode_t`."""
