"""Write a container image as an OCI layout in one tar file, byte for byte the same for the same content.

Sources: OCI image layout, image manifest and image configuration 1.0/1.1. One uncompressed layer; names sorted, owners 0, times 0.
Knows no image in particular and no registry.
"""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

_MANIFEST_TYPE: Final = "application/vnd.oci.image.manifest.v1+json"
_CONFIG_TYPE: Final = "application/vnd.oci.image.config.v1+json"
_LAYER_TYPE: Final = "application/vnd.oci.image.layer.v1.tar"


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageFile:
    """A regular file of an image."""

    content: bytes
    mode: int = 0o644


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageLink:
    """A symbolic link of an image."""

    target: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageFolder:
    """A folder of an image whose mode matters or that is empty; parents of files come by themselves."""

    mode: int = 0o755


ImageEntry = ImageFile | ImageLink | ImageFolder


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """An image: its full reference, what is in it, and how it runs."""

    reference: str
    architecture: str
    """As Go spells it: `amd64`, `arm64`."""
    entries: dict[str, ImageEntry]
    """By path without a leading slash."""
    command: tuple[str, ...]
    environment: tuple[str, ...] = ("PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",)


def archive(image: Image) -> bytes:
    """The image as `ctr images import` and `skopeo copy oci-archive:` read it."""
    layer = _tar(_with_parents(image.entries))
    config = _json(
        {
            "architecture": image.architecture,
            "os": "linux",
            "config": {"Cmd": list(image.command), "Env": list(image.environment), "WorkingDir": "/"},
            "rootfs": {"type": "layers", "diff_ids": [_digest(layer)]},
        }
    )
    manifest = _json(
        {
            "schemaVersion": 2,
            "mediaType": _MANIFEST_TYPE,
            "config": _descriptor(_CONFIG_TYPE, config),
            "layers": [_descriptor(_LAYER_TYPE, layer)],
        }
    )
    # containerd takes the full reference from its own annotation; the other one is the layout's and holds a tag for most readers.
    names = {"io.containerd.image.name": image.reference, "org.opencontainers.image.ref.name": image.reference}
    index = _json({"schemaVersion": 2, "manifests": [{**_descriptor(_MANIFEST_TYPE, manifest), "annotations": names}]})
    blobs = {f"blobs/sha256/{hashlib.sha256(blob).hexdigest()}": ImageFile(content=blob) for blob in (config, manifest, layer)}
    layout = _json({"imageLayoutVersion": "1.0.0"})
    return _tar({"oci-layout": ImageFile(content=layout), "index.json": ImageFile(content=index), **blobs})


def _with_parents(entries: dict[str, ImageEntry]) -> dict[str, ImageEntry]:
    parents: dict[str, ImageEntry] = {
        str(parent): ImageFolder() for path in entries for parent in PurePosixPath(path).parents if parent.name
    }
    return {**parents, **entries}


def _tar(entries: Mapping[str, ImageEntry]) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path in sorted(entries):
            entry = entries[path]
            member = tarfile.TarInfo(path)
            match entry:
                case ImageFile():
                    member.mode, member.size = entry.mode, len(entry.content)
                    tar.addfile(member, io.BytesIO(entry.content))
                case ImageLink():
                    member.type, member.linkname, member.mode = tarfile.SYMTYPE, entry.target, 0o777
                    tar.addfile(member)
                case ImageFolder():
                    member.type, member.mode = tarfile.DIRTYPE, entry.mode
                    tar.addfile(member)
    return stream.getvalue()


def _descriptor(media_type: str, content: bytes) -> dict[str, Any]:
    return {"mediaType": media_type, "digest": _digest(content), "size": len(content)}


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def _json(document: dict[str, Any]) -> bytes:
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
