"""The bytes of a journal file.

Two JSON lines: a head (`kind`, `version`, and `length` and `sha256` of what follows) and the claim. The checksum covers the second line as
it stands on disk, never a re-encoding of what was understood; so a build that knows more or fewer fields reads the file all the same.
`version` rises only when an older build could misread the content.
"""

from __future__ import annotations

import hashlib
import json
from enum import StrEnum
from typing import Any, Final

from gpu_dra.core.errors import Broken
from gpu_dra.model.claim import ClaimRef
from gpu_dra.model.mig import Placement
from gpu_dra.model.prepared import Effect, Phase, PreparedClaim, PreparedDevice

KIND: Final = "gpu-dra.claim"
VERSION: Final = 1


class Damage(StrEnum):
    """What is wrong with a journal file, as a metric label."""

    EMPTY = "empty"
    TRUNCATED = "truncated"
    CHECKSUM = "checksum"
    NEWER = "newer"
    UNKNOWN = "unknown"


class DamagedEntry(Broken):
    """A journal file that cannot be used."""

    def __init__(self, damage: Damage, message: str) -> None:
        super().__init__(message)
        self.damage = damage


def encode(claim: PreparedClaim) -> bytes:
    """The file's content."""
    body = json.dumps(_fields(claim), separators=(",", ":")).encode()
    head = {"kind": KIND, "version": VERSION, "length": len(body), "sha256": hashlib.sha256(body).hexdigest()}
    return json.dumps(head).encode() + b"\n" + body + b"\n"


def decode(content: bytes) -> PreparedClaim:
    """The claim in `content`. Unknown fields are passed over, missing ones mean the cautious thing. Raises DamagedEntry."""
    if not content.strip(b"\0 \n"):
        raise DamagedEntry(Damage.EMPTY, "the file is empty")
    head_line, newline, rest = content.partition(b"\n")
    head = _head(head_line, complete=bool(newline))
    body = rest[: head["length"]]
    if len(body) < head["length"]:
        raise DamagedEntry(Damage.TRUNCATED, f"{len(body)} of {head['length']} bytes are there")
    if hashlib.sha256(body).hexdigest() != head["sha256"]:
        raise DamagedEntry(Damage.CHECKSUM, "the content does not match its checksum")
    try:
        return _claim(json.loads(body))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DamagedEntry(Damage.UNKNOWN, f"the content is of another shape: {error!r}") from error


def _head(line: bytes, *, complete: bool) -> dict[str, Any]:
    try:
        head = json.loads(line)
    except (ValueError, RecursionError) as error:
        if complete:
            raise DamagedEntry(Damage.UNKNOWN, "the first line is not JSON") from error
        raise DamagedEntry(Damage.TRUNCATED, "the first line is cut") from error
    if not isinstance(head, dict) or head.get("kind") != KIND or not isinstance(head.get("version"), int):
        raise DamagedEntry(Damage.UNKNOWN, f"the file is not of kind {KIND}")
    if head["version"] > VERSION:
        raise DamagedEntry(Damage.NEWER, f"format version {head['version']} is newer than {VERSION}, the newest this build reads")
    if not isinstance(head.get("length"), int) or head["length"] < 0:
        raise DamagedEntry(Damage.UNKNOWN, "the first line has no length")
    return {"sha256": None, **head}


def _fields(claim: PreparedClaim) -> dict[str, Any]:
    return {
        "namespace": claim.ref.namespace,
        "name": claim.ref.name,
        "uid": claim.ref.uid,
        "phase": claim.phase,
        "bootID": claim.boot_id,
        "driverVersion": claim.driver_version,
        "devices": [_device_fields(device) for device in claim.devices],
        "nodePaths": claim.node_paths,
        "effects": [{"kind": effect.kind, "data": dict(effect.data)} for effect in claim.effects],
    }


def _device_fields(device: PreparedDevice) -> dict[str, Any]:
    placement = None if device.placement is None else {"start": device.placement.start, "size": device.placement.size}
    return {
        "request": device.request,
        "pool": device.pool,
        "device": device.device,
        "uuid": device.uuid,
        "gpuUUID": device.gpu_uuid,
        "placement": placement,
        "cdiIDs": device.cdi_ids,
        "adminAccess": device.admin_access,
        "shareID": device.share_id,
    }


def _claim(fields: dict[str, Any]) -> PreparedClaim:
    ref = ClaimRef(namespace=str(fields.get("namespace", "")), name=str(fields.get("name", "")), uid=str(fields["uid"]))
    return PreparedClaim(
        ref=ref,
        phase=Phase(fields.get("phase", Phase.INTENT)),  # without a phase nothing is known to be finished
        devices=tuple(_device(device) for device in fields["devices"]),
        boot_id=str(fields.get("bootID", "")),  # equal to no boot id: everything is checked and made again
        driver_version=str(fields.get("driverVersion", "")),
        node_paths=tuple(map(str, fields.get("nodePaths", ()))),
        effects=tuple(
            Effect(kind=str(effect["kind"]), data={str(key): str(value) for key, value in effect["data"].items()})
            for effect in fields.get("effects", ())
        ),
    )


def _device(fields: dict[str, Any]) -> PreparedDevice:
    placement, share_id = fields.get("placement"), fields.get("shareID")
    return PreparedDevice(
        request=str(fields["request"]),
        pool=str(fields["pool"]),
        device=str(fields["device"]),
        uuid=str(fields.get("uuid", "")),
        cdi_ids=tuple(map(str, fields["cdiIDs"])),
        admin_access=fields.get("adminAccess") is True,
        share_id=None if share_id is None else str(share_id),
        gpu_uuid=str(fields.get("gpuUUID", "")),
        placement=None if placement is None else Placement(start=int(placement["start"]), size=int(placement["size"])),
    )
