"""What the driver root holds for containers: libraries with their links, programs, firmware, configuration, X modules.

Reads the tree, changes nothing. Every file is followed to where it really is, inside the driver root, because the runtime would
follow an absolute link of a foreign root elsewhere; each is known by three paths: ours, the runtime's and the container's. Knows
nothing of devices. Names come from `catalog`; the search order of directories from NVIDIA's container toolkit (`pkg/lookup`).
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final

from gpu_dra.cdi import catalog
from gpu_dra.core.errors import NotReady
from gpu_dra.hardware import elf
from gpu_dra.hardware.driver_root import library_directories, resolve_in_root

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gpu_dra.hardware.host import HostPaths

_VERSION: Final = re.compile(r"\d+(?:\.\d+){1,2}")


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverFile:
    """A file of the driver and the three ways to it."""

    seen_at: str
    """Where this process finds it."""
    host_path: str
    """Where the container runtime finds it."""
    container_path: str
    """Where a container expects it: its path without the driver root."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LibraryLink:
    """Another name for a library, such as its SONAME."""

    path: str
    """In the container."""
    target: str
    """What a symbolic link at `path` says."""
    file: DriverFile
    """What the name leads to in the end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverFiles:
    """The files of one driver version, in a stable order."""

    version: str
    libraries: tuple[DriverFile, ...]
    links: tuple[LibraryLink, ...]
    others: tuple[DriverFile, ...]
    """Programs, firmware, configuration, X modules."""
    loader_directories: tuple[str, ...]
    """In the container: where the loader has to look; those of plugins that are loaded by path are not among them."""
    libcuda_directories: tuple[str, ...]
    watched: tuple[str, ...]
    """Directories whose change may mean that this answer is out of date."""

    @property
    def files(self) -> tuple[DriverFile, ...]:
        """Everything that is mounted."""
        return self.libraries + self.others


@dataclass(frozen=True, slots=True)
class _Library:
    file: DriverFile
    directory: str
    name: str
    soname: str
    is_plugin: bool
    """Loaded by path from a directory of its own, not by the loader's search."""

    @property
    def stem(self) -> str:
        """File name up to and with `.so`."""
        return self.name.partition(".so")[0] + ".so"

    def link(self, path: str, target: str) -> LibraryLink:
        """Another name, relative to the library's directory."""
        return LibraryLink(path=str(PurePosixPath(self.directory, path)), target=target, file=self.file)


def scan(host: HostPaths, version: str) -> DriverFiles:
    """Find the files of the driver `version` (`580.126.09`, as NVML prints it) below `host.driver_root`.

    Blocking, some 10 ms. Raises NotReady when there is no libcuda of that version: then no container could use a GPU.
    """
    tree = _Tree(host)
    directories = library_directories(host.driver_root)
    libraries = list(_libraries(tree, directories, version))
    libcuda = [library.directory for library in libraries if library.stem == "libcuda.so"]
    if not libcuda:
        raise NotReady(_no_libcuda(host, version, directories))
    links = list(_links(tree, libraries))
    modules, module_links = _xorg_modules(tree, directories, version)
    others = [*_programs(tree), *_firmware(tree, version), *_configuration(tree), *modules]
    unique_links = {link.path: link for link in (*links, *module_links)}
    return DriverFiles(
        version=version,
        libraries=tuple(library.file for library in libraries),
        links=tuple(unique_links.values()),
        others=tuple({file.container_path: file for file in others}.values()),
        loader_directories=tuple(dict.fromkeys(library.directory for library in libraries if not library.is_plugin)),
        libcuda_directories=tuple(dict.fromkeys(libcuda)),
        watched=tuple(tree.watched),
    )


class _Tree:
    """The driver root with a memory of where we looked."""

    def __init__(self, host: HostPaths) -> None:
        self.host = host
        self.watched: dict[str, None] = {str(host.driver_root): None}

    def directory(self, path: Path) -> Path | None:
        """The directory behind `path`, a path below our view of the root; None when there is none now.

        Of one that is not there, the nearest directory above it is watched: it changes when the missing one is made.
        """
        root = self.host.driver_root
        found = resolve_in_root(root, path.relative_to(root))
        nearest = found
        while nearest is None:
            path = path.parent
            nearest = resolve_in_root(root, path.relative_to(root)) if path != root else root
        self.watched[str(nearest)] = None
        return found if found is not None and found.is_dir() else None

    def below_root(self, relative: str) -> Path | None:
        return self.directory(self.host.driver_root / relative)

    def file(self, path: Path, *, container_path: str | None = None) -> DriverFile | None:
        """The regular file behind `path`; None for a directory, a socket, a dangling link or nothing."""
        root = self.host.driver_root
        found = resolve_in_root(root, path.relative_to(root))
        if found is None or not found.is_file():
            return None
        return DriverFile(
            seen_at=str(found),
            host_path=str(self.host.on_host(found)),
            container_path=container_path or self.in_container(path),
        )

    def in_container(self, path: Path) -> str:
        return str(PurePosixPath("/", path.relative_to(self.host.driver_root)))


def _libraries(tree: _Tree, directories: Iterable[Path], version: str) -> Iterator[_Library]:
    """Each library once, from the first directory that has it for this machine; names of a directory in order of their version."""
    suffix = f".so.{version}"
    seen: set[str] = set()
    for top in directories:
        for subdirectory in catalog.LIBRARY_SUBDIRECTORIES:
            directory = tree.directory(top / subdirectory)
            for name in _names(directory):
                if directory is None or not (name.endswith(suffix) or catalog.OWN_VERSION_LIBRARY.fullmatch(name)):
                    continue
                library = _library(tree, directory, name, is_plugin=bool(subdirectory))
                if library is not None and f"{subdirectory}/{name}" not in seen:
                    seen.add(f"{subdirectory}/{name}")
                    yield library


def _library(tree: _Tree, directory: Path, name: str, *, is_plugin: bool) -> _Library | None:
    """None for what the loader of this machine could not load, such as a 32-bit library or a directory."""
    file = tree.file(directory / name)
    if file is None:
        return None
    try:
        header = elf.read(Path(file.seen_at))
    except (OSError, elf.NotAnElfFile):
        return None
    if header.machine != elf.own_machine():
        return None
    return _Library(file, tree.in_container(directory), name, header.soname or name, is_plugin)


def _links(tree: _Tree, libraries: Iterable[_Library]) -> Iterator[LibraryLink]:
    for library in libraries:
        if library.soname != library.name:
            yield library.link(library.soname, library.name)
        wanted = {extra.link for extra in catalog.EXTRA_LINKS if extra.library == library.stem}
        unversioned = tree.file(Path(library.file.seen_at).parent / library.stem)
        if unversioned is not None and unversioned.seen_at == library.file.seen_at:
            wanted.add(library.stem)  # the driver's own package offers this name
        for link in sorted(wanted):
            yield library.link(link, "../" * link.count("/") + library.soname)


def _xorg_modules(tree: _Tree, tops: Iterable[Path], version: str) -> tuple[list[DriverFile], list[LibraryLink]]:
    modules: list[DriverFile] = []
    links: list[LibraryLink] = []
    for directory in (tree.directory(top / relative) for top in tops for relative in catalog.XORG_DIRECTORIES):
        if directory is None:
            continue
        name = f"{catalog.XORG_EXTENSION}.{version}"
        driver, extension = tree.file(directory / catalog.XORG_DRIVER), tree.file(directory / name)
        modules += [module for module in (driver, extension) if module is not None]
        if extension is not None:
            links.append(LibraryLink(path=f"{tree.in_container(directory)}/{catalog.XORG_EXTENSION}", target=name, file=extension))
    return modules, links


def _programs(tree: _Tree) -> Iterator[DriverFile]:
    directories = [directory for path in catalog.PROGRAM_DIRECTORIES if (directory := tree.below_root(path)) is not None]
    for name in catalog.PROGRAMS:
        found = (tree.file(directory / name) for directory in dict.fromkeys(directories))
        program = next((file for file in found if file is not None and os.access(file.seen_at, os.X_OK)), None)
        if program is not None:
            yield program


def _firmware(tree: _Tree, version: str) -> Iterator[DriverFile]:
    """The GSP images from the first firmware directory, in the kernel's own order, that has any."""
    for top in _firmware_directories(tree.host):
        directory = tree.directory(top / "nvidia" / version)
        images = [name for name in _names(directory) if catalog.FIRMWARE.fullmatch(name)]
        if directory is not None and images:
            for name in images:
                file = tree.file(directory / name, container_path=f"/lib/firmware/nvidia/{version}/{name}")
                if file is not None:
                    yield file
            return


def _firmware_directories(host: HostPaths) -> Iterator[Path]:
    """Kernel documentation, `driver-api/firmware/fw_search_path`."""
    try:
        custom = Path((host.sys / "module/firmware_class/parameters/path").read_text().strip())
    except OSError:
        custom = Path()
    if custom.is_absolute() and custom.is_relative_to(host.host_driver_root):
        yield host.driver_root / custom.relative_to(host.host_driver_root)
    release = os.uname().release
    for relative in (f"updates/{release}", "updates", release, ""):
        yield host.driver_root / "lib/firmware" / relative


def _configuration(tree: _Tree) -> Iterator[DriverFile]:
    root = tree.host.driver_root
    for place, names in catalog.CONFIGURATION.items():
        for name in names:
            paths = [root / source / name for source in catalog.CONFIGURATION_SOURCES]
            for directory in (path.parent for path in paths):
                tree.directory(directory)
            found = (tree.file(path, container_path=f"{place}/{name}") for path in paths)
            yield from (file for file in [next(filter(None, found), None)] if file is not None)


def _names(directory: Path | None) -> list[str]:
    if directory is None:
        return []
    try:
        return sorted(os.listdir(directory), key=_by_version)  # noqa: PTH208 - names alone, of thousands of files
    except OSError:
        return []


def _by_version(name: str) -> tuple[str, tuple[int, ...]]:
    stem, _, rest = name.partition(".so.")
    return stem, tuple(int(part) for part in rest.split(".") if part.isdecimal())


def _no_libcuda(host: HostPaths, version: str, directories: Iterable[Path]) -> str:
    looked = [str(directory) for directory in directories]
    present = sorted(
        {
            name.removeprefix("libcuda.so.")
            for directory in looked
            for name in _names(Path(directory))
            if name.startswith("libcuda.so.") and _VERSION.fullmatch(name.removeprefix("libcuda.so."))
        }
    )
    held = (
        f"only {', '.join(present)} is there" if present else f"looked in {', '.join(looked) or 'no directory: the root is empty'}"
    )
    return (
        f"driver {version} is loaded but libcuda.so.{version} is not below the driver root {host.driver_root} ({held});"
        " waiting for the driver's installation to finish; install its compute libraries, or correct --nvidia-driver-root"
    )
