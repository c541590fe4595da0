"""Write the smallest ELF files that the dynamic loader, ldconfig and the kernel accept as what they claim to be.

A driver's libraries matter to this project by name, SONAME and architecture only, so a stub holds one loadable segment with a
dynamic section and no code; a program holds the few instructions that exit with status 0. Source: System V ABI (gABI) and its
x86-64 and AArch64 supplements. No symbols, no relocations, no notes.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

_HEADER_SIZE: Final = 64
_PROGRAM_HEADER_SIZE: Final = 56
_ET_EXEC, _ET_DYN = 2, 3
_PT_LOAD, _PT_DYNAMIC, _PT_INTERP, _PT_GNU_STACK = 1, 2, 3, 0x6474E551
_PF_X, _PF_W, _PF_R = 1, 2, 4
_DT_NULL, _DT_HASH, _DT_STRTAB, _DT_SYMTAB, _DT_STRSZ, _DT_SYMENT, _DT_SONAME = 0, 4, 5, 6, 10, 11, 14
_SYMBOL_SIZE: Final = 24
_PAGE: Final = 0x10000
"""Segment alignment: 64 KiB, the largest page size of the two architectures."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """An instruction set as ELF, Debian and OCI name it."""

    machine: str
    """As `uname -m` says it."""
    oci: str
    elf_machine: int
    triplet: str
    exit_code: bytes
    """Machine code of `exit(0)` as a bare system call."""


X86_64: Final = Architecture(
    machine="x86_64",
    oci="amd64",
    elf_machine=62,
    triplet="x86_64-linux-gnu",
    exit_code=bytes.fromhex("31ff b83c000000 0f05"),  # xor edi,edi; mov eax,60; syscall
)
AARCH64: Final = Architecture(
    machine="aarch64",
    oci="arm64",
    elf_machine=183,
    triplet="aarch64-linux-gnu",
    exit_code=bytes.fromhex("000080d2 a80b80d2 010000d4"),  # mov x0,0; mov x8,93; svc 0
)


def architecture(machine: str) -> Architecture:
    """Look up an architecture by its `uname -m` name. Raises ValueError for one that the test bed does not know."""
    for known in (X86_64, AARCH64):
        if machine == known.machine:
            return known
    raise ValueError(f"no stand-in driver for {machine}: build on x86_64 or aarch64")


def shared_object(soname: str, arch: Architecture) -> bytes:
    """A library that dlopen(3) loads and ldconfig(8) lists under `soname`."""
    strings = b"\0" + soname.encode() + b"\0"
    # Header, three program headers, then the tables that the dynamic section points to.
    hash_at = _HEADER_SIZE + 3 * _PROGRAM_HEADER_SIZE
    hash_table = struct.pack("<4I", 1, 1, 0, 0)  # one bucket, one (null) symbol
    symbols_at = _align(hash_at + len(hash_table), 8)
    strings_at = symbols_at + _SYMBOL_SIZE
    dynamic_at = _align(strings_at + len(strings), 8)
    dynamic = b"".join(
        struct.pack("<2Q", tag, value)
        for tag, value in (
            (_DT_SONAME, 1),
            (_DT_HASH, hash_at),
            (_DT_STRTAB, strings_at),
            (_DT_STRSZ, len(strings)),
            (_DT_SYMTAB, symbols_at),
            (_DT_SYMENT, _SYMBOL_SIZE),
            (_DT_NULL, 0),
        )
    )
    size = dynamic_at + len(dynamic)
    headers = (
        # Writable: glibc before 2.35 relocates the dynamic section in place.
        _program_header(_PT_LOAD, _PF_R | _PF_W, 0, size, address=0),
        _program_header(_PT_DYNAMIC, _PF_R | _PF_W, dynamic_at, len(dynamic), address=dynamic_at),
        # Without it the loader asks for an executable stack, which newer glibc refuses to dlopen.
        _program_header(_PT_GNU_STACK, _PF_R | _PF_W, 0, 0, address=0),
    )
    content = _file_header(_ET_DYN, arch, entry=0, program_headers=len(headers)) + b"".join(headers)
    content += hash_table
    content = content.ljust(strings_at, b"\0") + strings
    return content.ljust(dynamic_at, b"\0") + dynamic


def program(arch: Architecture) -> bytes:
    """A static executable that exits with status 0 whatever its arguments."""
    base = 0x400000
    code_at = _HEADER_SIZE + _PROGRAM_HEADER_SIZE
    size = code_at + len(arch.exit_code)
    header = _file_header(_ET_EXEC, arch, entry=base + code_at, program_headers=1)
    return header + _program_header(_PT_LOAD, _PF_R | _PF_X, 0, size, address=base) + arch.exit_code


def is_static(content: bytes) -> bool:
    """Whether an ELF64 little-endian executable runs without a loader, that is, names no interpreter."""
    program_headers_at = struct.unpack_from("<Q", content, 32)[0]
    entry_size, count = struct.unpack_from("<2H", content, 54)
    types = (struct.unpack_from("<I", content, program_headers_at + index * entry_size)[0] for index in range(count))
    return _PT_INTERP not in types


def _file_header(kind: int, arch: Architecture, *, entry: int, program_headers: int) -> bytes:
    identification = b"\x7fELF" + bytes((2, 1, 1, 0)) + bytes(8)  # 64 bit, little endian, version 1, System V
    return identification + struct.pack(
        "<2HI3QI6H",
        kind,
        arch.elf_machine,
        1,
        entry,
        _HEADER_SIZE,
        0,  # no section headers: nothing at run time reads them
        0,
        _HEADER_SIZE,
        _PROGRAM_HEADER_SIZE,
        program_headers,
        0,
        0,
        0,
    )


def _program_header(kind: int, flags: int, offset: int, size: int, *, address: int) -> bytes:
    alignment = _PAGE if kind == _PT_LOAD else 8
    return struct.pack("<2I6Q", kind, flags, offset, address, address, size, size, alignment)


def _align(offset: int, alignment: int) -> int:
    return -(-offset // alignment) * alignment
