"""How a claim and its devices are called in the CDI, so that files, device names and ids agree.

Vendor, class, file name and device name are those of NVIDIA's driver: manifests and tools that know its ids keep working, and a file
that it left behind is replaced instead of defining the same device twice.
"""

from __future__ import annotations

import re
from typing import Final

from gpu_dra.core.errors import Refused

CLAIM_KIND: Final = "k8s.gpu.nvidia.com/claim"

_PREFIX: Final = "k8s.gpu.nvidia.com-claim_"
_SUFFIX: Final = ".yaml"
# A UID becomes part of a file name and of a device name; the API server makes UUIDs, other clients of the socket may not.
_UID: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,126}[A-Za-z0-9])?")


def check_uid(uid: str) -> None:
    """Raises Refused for a claim UID that is not safe in file and device names."""
    if not _UID.fullmatch(uid):
        raise Refused(f"claim UID {uid!r} cannot be part of a file name; expected a UUID")


def file_name(uid: str) -> str:
    """Name of the claim's file in the CDI directory. Raises Refused."""
    check_uid(uid)
    return f"{_PREFIX}{uid}{_SUFFIX}"


def uid_of(name: str) -> str | None:
    """The claim a file name stands for; None for a file that is not ours."""
    uid = name.removeprefix(_PREFIX).removesuffix(_SUFFIX)
    return uid if len(name) == len(_PREFIX) + len(uid) + len(_SUFFIX) and _UID.fullmatch(uid) else None


def device_name(uid: str, device: str) -> str:
    """What a device of the pool is called in the claim's file."""
    return f"{uid}-{device}"
