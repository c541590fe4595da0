"""Version strings of the driver, turned into strict semantic versions.

The API server takes a `version` attribute only when it is strict semver 2.0.0, and refuses the whole slice otherwise; NVIDIA numbers
its drivers `580.126.09` or `580.142`. Source: resource/v1 `DeviceAttribute.version`; NVIDIA's DRA driver publishes the same form.
"""

from __future__ import annotations

import re

_DRIVER_VERSION = re.compile(r"[0-9]+(?:\.[0-9]+)*")
_NUMBER = r"(?:0|[1-9][0-9]*)"
_PRERELEASE = r"(?:0|[1-9][0-9]*|[0-9]*[a-zA-Z-][0-9a-zA-Z-]*)"
_BUILD = r"[0-9a-zA-Z-]+"
_SEMVER = re.compile(
    rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}(?:-{_PRERELEASE}(?:\.{_PRERELEASE})*)?(?:\+{_BUILD}(?:\.{_BUILD})*)?",
)
_LARGEST = 2**64 - 1
"""CEL's semver library reads each number as uint64; a larger one would fail every selector that looks at it."""


def is_semver(text: str) -> bool:
    """True for a strict semantic version 2.0.0, by the API server's own pattern."""
    return _SEMVER.fullmatch(text) is not None


def normalise(version: str) -> str:
    """Turn a dotted number such as NVML's driver version into semver: `580.126.09` → `580.126.9`, `580.142` → `580.142.0`.

    Numbers after the third become build metadata (`6.19.14.3` → `6.19.14+3`), which semver does not compare. Raises ValueError for
    anything that is not digits and dots.
    """
    text = version.strip()
    if not _DRIVER_VERSION.fullmatch(text):
        raise ValueError(f"{version!r} is not a version of numbers and dots such as 580.126.09")
    numbers = [part.lstrip("0") or "0" for part in text.split(".")]
    if any(len(number) > len(str(_LARGEST)) or int(number) > _LARGEST for number in numbers):
        raise ValueError(f"{version!r} has a number above {_LARGEST}, which no reader of semantic versions takes")
    core = [*numbers, "0", "0"][:3]
    build = numbers[3:]
    return ".".join(core) + ("+" + ".".join(build) if build else "")
