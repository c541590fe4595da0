"""Read the dynamic loader's cache, to learn in which directories a host keeps its libraries.

Format: glibc `sysdeps/generic/dl-cache.h`, `glibc-ld.so.cache1.1`, alone or appended to the older `ld.so-1.7.0` table as ldconfig
wrote it by default before glibc 2.32. Pure: bytes in, entries out. No hwcaps choice; callers check the files themselves.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from gpu_dra.core.errors import Broken

_OLD_MAGIC: Final = b"ld.so-1.7.0\0"
_OLD_HEADER: Final = struct.Struct("<12sI")
_OLD_ENTRY_SIZE: Final = 12
_MAGIC: Final = b"glibc-ld.so.cache1.1"
_HEADER: Final = struct.Struct("<20sIIB3xI12x")
_ENTRY: Final = struct.Struct("<iIIIQ")
_ALIGNMENT: Final = 8
"""Of `struct cache_file_new`, which is what the appended table starts at."""
_BIG_ENDIAN: Final = 3


class DamagedLoaderCache(Broken):
    """The bytes are no loader cache that we can read; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheEntry:
    """One library the loader knows."""

    soname: str
    path: str
    """Absolute, as seen from the root that the cache belongs to."""


def parse(content: bytes) -> tuple[CacheEntry, ...]:
    """Entries in the order of the file. Raises DamagedLoaderCache."""
    try:
        return _entries(content, _start(content))
    except (struct.error, ValueError) as error:
        raise DamagedLoaderCache(f"the loader cache is damaged: {error}; run ldconfig") from error


def _start(content: bytes) -> int:
    """Where the table of the current format begins."""
    if not content.startswith(_OLD_MAGIC):
        return 0
    count: int = _OLD_HEADER.unpack_from(content)[1]
    end = _OLD_HEADER.size + count * _OLD_ENTRY_SIZE
    return -(-end // _ALIGNMENT) * _ALIGNMENT


def _entries(content: bytes, start: int) -> tuple[CacheEntry, ...]:
    magic, count, _, flags, _ = _HEADER.unpack_from(content, start)
    if magic != _MAGIC:
        raise DamagedLoaderCache(f"the loader cache has no {_MAGIC.decode()} table; run ldconfig of glibc 2.2 or later")
    if flags & 3 == _BIG_ENDIAN:
        raise DamagedLoaderCache("the loader cache was written for a big-endian machine")
    table = start + _HEADER.size
    rows = (_ENTRY.unpack_from(content, table + index * _ENTRY.size) for index in range(count))
    return tuple(CacheEntry(soname=_text(content, start + key), path=_text(content, start + value)) for _, key, value, _, _ in rows)


def _text(content: bytes, at: int) -> str:
    return content[at : content.index(b"\0", at)].decode()
