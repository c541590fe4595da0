"""What a container gets: for every GPU container alike, and for one device.

Pure: files, nodes and the hook program come in, edits go out. Content and order as NVIDIA's container toolkit 1.20 writes them
(`pkg/nvcdi`), in two forms. With `nvidia-cdi-hook` on the host, links and the loader cache are made inside the container. Without it,
each library is mounted under every name it is loaded by, in one directory of its own that `LD_LIBRARY_PATH` names; what then stays
undone is said in sentences.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gpu_dra.cdi.spec import ContainerEdits, DeviceNode, Hook, Mount

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gpu_dra.cdi.driver_files import DriverFile, DriverFiles
    from gpu_dra.hardware.devnodes import NodeSpec
    from gpu_dra.model.pci import PciAddress

_FILE_OPTIONS: Final = ("ro", "nosuid", "nodev", "rbind", "rprivate")
_IPC_OPTIONS: Final = ("nosuid", "nodev", "rbind", "rprivate", "noexec")
"""Not read-only: connecting to a socket needs write permission."""

_VOID: Final = "NVIDIA_VISIBLE_DEVICES=void"
"""Keeps NVIDIA's older runtime wrapper, which injects by this variable, from adding every GPU of an image that says `all`."""

HOOKLESS_DIRECTORY: Final = "/usr/local/nvidia/lib64"
"""CUDA images list it in their `LD_LIBRARY_PATH`; no library of the image lies there, so none is put before another."""

_IMAGE_DIRECTORIES: Final = ("/usr/local/nvidia/lib", "/usr/local/cuda/lib64")
"""What CUDA images set besides; ours takes the variable's place, so they are kept."""

_WORLD_READ_WRITE: Final = 0o006


def common_edits(
    files: DriverFiles, *, nodes: Sequence[NodeSpec], sockets: Iterable[DriverFile], hook: str | None
) -> ContainerEdits:
    """What every container with a GPU needs: control nodes, the driver's files, and what makes the loader find them."""
    ipc = tuple(_mount(socket, socket.container_path, _IPC_OPTIONS) for socket in sockets)
    return ContainerEdits(
        env=_environment(files, hooked=hook is not None),
        device_nodes=tuple(map(_device_node, nodes)),
        mounts=(*(_hookless_mounts(files) if hook is None else _plain_mounts(files.files)), *ipc),
        hooks=() if hook is None else _hooks(hook, files),
        additional_gids=_additional_gids(nodes),
    )


def device_edits(nodes: Sequence[NodeSpec], *, pci: PciAddress, hook: str | None) -> ContainerEdits:
    """What one GPU or MIG device adds: its nodes, and the by-path names of its DRM nodes."""
    by_path = [link for node in nodes if (link := _by_path_link(node, pci)) is not None]
    return ContainerEdits(
        device_nodes=tuple(map(_device_node, nodes)),
        hooks=() if hook is None or not by_path else (_create_symlinks(hook, by_path),),
        additional_gids=_additional_gids(nodes),
    )


def missing_without_hook(looked_in: Sequence[str], *, drm: bool) -> tuple[str, ...]:
    """What a container lacks in the hook-less form, one sentence each; `drm` when a device has DRM nodes."""
    places = ", ".join(looked_in)
    sentences = (
        f"nvidia-cdi-hook was not found (looked at {places}): the hook-less form is used; install NVIDIA's container toolkit on the"
        " host or set --nvidia-cdi-hook-path",
        "The container's loader cache is not updated: libraries are found by LD_LIBRARY_PATH, which replaces the image's own value.",
        "CUDA forward compatibility is off: a newer libcuda in the image's /usr/local/cuda/compat is not used.",
        "Device-node protection is off: a root process in the container may make nodes of other GPUs, though the device cgroup"
        " still keeps it from opening them.",
    )
    graphics = ("The links in /dev/dri/by-path are missing.",) if drm else ()
    return sentences + graphics


def is_drm(node: NodeSpec) -> bool:
    """True for a node of the graphics subsystem."""
    return node.path.startswith("/dev/dri/")


def _environment(files: DriverFiles, *, hooked: bool) -> tuple[str, ...]:
    if hooked:
        return (_VOID, f"NVIDIA_CTK_LIBCUDA_DIR={':'.join(files.libcuda_directories)}")
    search = ":".join((HOOKLESS_DIRECTORY, *_IMAGE_DIRECTORIES))
    return (_VOID, f"NVIDIA_CTK_LIBCUDA_DIR={HOOKLESS_DIRECTORY}", f"LD_LIBRARY_PATH={search}")


def _plain_mounts(files: Iterable[DriverFile]) -> list[Mount]:
    return [_mount(file, file.container_path, _FILE_OPTIONS) for file in files]


def _hookless_mounts(files: DriverFiles) -> list[Mount]:
    """Each library under its own and its other names; those of a loader directory moved to ours, those of a plugin directory in place."""
    names = [(file, file.container_path) for file in files.libraries] + [(link.file, link.path) for link in files.links]
    places = {_hookless_place(path, files.loader_directories): file for file, path in names}
    return [_mount(file, path, _FILE_OPTIONS) for path, file in places.items()] + _plain_mounts(files.others)


def _hookless_place(path: str, loader_directories: Sequence[str]) -> str:
    directory, _, name = path.rpartition("/")
    return f"{HOOKLESS_DIRECTORY}/{name}" if (directory or "/") in loader_directories else path


def _mount(file: DriverFile, container_path: str, options: tuple[str, ...]) -> Mount:
    return Mount(host_path=file.host_path, container_path=container_path, options=options)


def _hooks(program: str, files: DriverFiles) -> tuple[Hook, ...]:
    """In the order in which they build on each other: links, the choice of libcuda, the loader cache over both, protection."""
    folders = [argument for directory in files.loader_directories for argument in ("--folder", directory)]
    return (
        _create_symlinks(program, (f"{link.target}::{link.path}" for link in files.links)),
        _hook(program, "enable-cuda-compat", f"--host-driver-version={files.version}"),
        _hook(program, "update-ldcache", *folders),
        _hook(program, "disable-device-node-modification"),
    )


def _create_symlinks(program: str, links: Iterable[str]) -> Hook:
    return _hook(program, "create-symlinks", *(argument for link in links for argument in ("--link", link)))


def _hook(program: str, *arguments: str) -> Hook:
    return Hook(hook_name="createContainer", path=program, args=("nvidia-cdi-hook", *arguments), env=("NVIDIA_CTK_DEBUG=false",))


def _by_path_link(node: NodeSpec, pci: PciAddress) -> str | None:
    """The name udev gives a DRM node (`60-drm.rules`)."""
    if not is_drm(node):
        return None
    name = node.path.rpartition("/")[2]
    kind = "render" if name.startswith("renderD") else "card"
    return f"../{name}::/dev/dri/by-path/pci-{pci}-{kind}"


def _device_node(node: NodeSpec) -> DeviceNode:
    """Never with the owner: the runtime's default is the container's user."""
    return DeviceNode(path=node.path, major=node.major, minor=node.minor, file_mode=node.file_mode, gid=node.gid or None)


def _additional_gids(nodes: Iterable[NodeSpec]) -> tuple[int, ...]:
    """Groups a process needs to open nodes that are not open to all."""
    restricted = {node.gid for node in nodes if node.file_mode & _WORLD_READ_WRITE != _WORLD_READ_WRITE}
    return tuple(sorted(restricted - {0}))
