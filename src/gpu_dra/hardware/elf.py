"""Read the three things we need to know of an ELF file: its architecture, its kind and its SONAME.

Source: System V ABI (gABI), chapters 4 and 5. Reads a few hundred bytes of a file that may be a hundred MiB, since the driver's
libraries are that large. No sections, symbols, notes or big-endian files.
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Final

from gpu_dra.core.errors import Broken

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_PT_LOAD, _PT_DYNAMIC = 1, 2
_DT_NULL, _DT_STRTAB, _DT_SONAME = 0, 5, 14
_LONGEST_NAME: Final = 4096
_LARGEST_DYNAMIC: Final = 1 << 20
_LARGEST_ENTRY: Final = 256
"""A program header has 32 or 56 bytes; a damaged one must not make us read gigabytes."""
_LARGEST_OFFSET: Final = (1 << 63) - 1
"""Of a file, `off_t`."""


class Machine(IntEnum):
    """Architectures the NVIDIA driver exists for (`e_machine`)."""

    I386 = 3
    X86_64 = 62
    AARCH64 = 183


_BY_KERNEL_NAME: Final = {"x86_64": Machine.X86_64, "aarch64": Machine.AARCH64}


def own_machine() -> Machine | None:
    """The architecture of this process's libraries; None for one that the NVIDIA driver does not exist for (source: uname(2))."""
    return _BY_KERNEL_NAME.get(os.uname().machine)


class NotAnElfFile(Broken):
    """The file is not an ELF file that can be read; the message names it and what is wrong with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ElfFile:
    """What an ELF file says of itself."""

    machine: int
    """`e_machine`; a `Machine` for the architectures we know."""
    soname: str | None
    """None for a program, or for a library that has none."""


@dataclass(frozen=True, slots=True)
class _Layout:
    """Where the fields of the 32- and 64-bit forms are."""

    header: struct.Struct  # e_type e_machine e_version e_entry e_phoff e_shoff e_flags e_ehsize e_phentsize e_phnum
    segment_size: int
    dynamic: struct.Struct  # d_tag d_val


_LAYOUTS: Final = {
    1: _Layout(struct.Struct("<16xHHIIIIIHHH"), 32, struct.Struct("<iI")),
    2: _Layout(struct.Struct("<16xHHIQQQIHHH"), 56, struct.Struct("<qQ")),
}


@dataclass(frozen=True, slots=True)
class _Segment:
    kind: int
    offset: int
    address: int
    size: int


def read(path: Path) -> ElfFile:
    """Read an ELF file. Raises NotAnElfFile when it is none or is cut short, OSError when it cannot be read."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        return _read(descriptor)
    except (struct.error, UnicodeDecodeError, _Malformed) as error:
        raise NotAnElfFile(f"{path} is not a usable ELF file: {error}; reinstall the package it comes from") from error
    finally:
        os.close(descriptor)


class _Malformed(Exception):
    """What is wrong with the file, without its name."""


def _read(descriptor: int) -> ElfFile:
    head = _bytes(descriptor, 64, 0)
    if head[:4] != b"\x7fELF" or len(head) < 6:
        raise _Malformed("it does not begin with an ELF header")
    layout = _LAYOUTS.get(head[4])
    if layout is None or head[5] != 1:
        raise _Malformed("it is neither 32- nor 64-bit little-endian")
    _, machine, _, _, table_at, _, _, _, entry_size, count = layout.header.unpack_from(head)
    if entry_size > _LARGEST_ENTRY:
        raise _Malformed(f"its program headers claim {entry_size} bytes each")
    table = _bytes(descriptor, entry_size * count, table_at)
    segments = [_segment(table, index * entry_size, layout) for index in range(count)]
    return ElfFile(machine=machine, soname=_soname(descriptor, segments, layout))


def _segment(table: bytes, at: int, layout: _Layout) -> _Segment:
    if layout.segment_size == 32:
        kind, offset, address, _, size = struct.unpack_from("<5I", table, at)
    else:
        kind, _, offset, address, _, size = struct.unpack_from("<2I4Q", table, at)
    return _Segment(kind, offset, address, size)


def _soname(descriptor: int, segments: list[_Segment], layout: _Layout) -> str | None:
    dynamic = next((segment for segment in segments if segment.kind == _PT_DYNAMIC), None)
    if dynamic is None:
        return None
    if dynamic.size > _LARGEST_DYNAMIC:
        raise _Malformed(f"its dynamic section claims {dynamic.size} bytes")
    tags = dict(_tags(_bytes(descriptor, dynamic.size, dynamic.offset), layout))
    if _DT_SONAME not in tags:
        return None
    if _DT_STRTAB not in tags:
        raise _Malformed("it has a SONAME but no string table")
    at = _file_offset(segments, tags[_DT_STRTAB]) + tags[_DT_SONAME]
    name, end, _ = _bytes(descriptor, _LONGEST_NAME, at).partition(b"\0")
    if not end:
        raise _Malformed("its SONAME has no end")
    return name.decode()


def _bytes(descriptor: int, size: int, at: int) -> bytes:
    """What the file holds there; fewer bytes, or none, at and after its end."""
    return os.pread(descriptor, size, at) if at <= _LARGEST_OFFSET else b""


def _tags(section: bytes, layout: _Layout) -> Iterator[tuple[int, int]]:
    for at in range(0, len(section), layout.dynamic.size):
        tag, value = layout.dynamic.unpack_from(section, at)
        if tag == _DT_NULL:
            return
        yield tag, value


def _file_offset(segments: list[_Segment], address: int) -> int:
    for segment in segments:
        if segment.kind == _PT_LOAD and segment.address <= address < segment.address + segment.size:
            return address - segment.address + segment.offset
    raise _Malformed(f"no segment holds its string table at {address:#x}")
