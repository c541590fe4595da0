"""Lay the trees that an NVIDIA driver leaves on a machine, from a machine profile, and put them in place for one node.

    programs = DriverPrograms(nvml_library=…, nvidia_smi=…, cdi_hook=cdi_hook_program(cache, say=say))    # cdi_hook may be None
    tree = lay(machine, Path("/var/lib/lab/node-a/host"), programs=programs)     # needs root for the device nodes
    tree.apply()                # inside the node's private mount namespace, once
    tree.mount_commands()       # the same as argument vectors, for a start script
    tree.sync()                 # device nodes of the partitions that exist now come, others go
    HostTree.open(directory)    # later, from another process

One directory holds everything and is consistent in itself, so a process can also be pointed at it without any mount:

    <dir>/root     driver root: libraries, programs, firmware, configuration; applied at /run/nvidia/driver
    <dir>/proc     driver/nvidia/**, driver/nvidia-caps/mig-minors, devices
    <dir>/sys      bus/pci/devices -> devices/pci…, module/nvidia
    <dir>/dev      nvidia*, nvidia-caps/*, dri/*

`lay` on the same directory again is what a reboot does: everything is as new but the mocked machine's state, which lives in the
library directory and forgets by its own rules (so lay first, then make or reboot the mocked machine). Libraries are built for this
machine, whatever processor the profile has: its programs load them. Not here: the mocked library (mock_nvml), a machine's facts
(profiles), the files themselves (driver_files, kernel_files, pci_files), the mounts (mounts).
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hack.testbed import mounts
from hack.testbed.cluster.errors import LabError
from hack.testbed.driver_files import KERNEL_TREE, DriverPrograms, driver_root, library_directory
from hack.testbed.elf_stub import architecture
from hack.testbed.kernel_files import CONFIG_CAPABILITY, MONITOR_CAPABILITY, capability_node, dev_entries, proc_entries
from hack.testbed.native import static_program
from hack.testbed.pci_files import sys_entries
from hack.testbed.tree import CharDevice, write

if TYPE_CHECKING:
    from hack.testbed.cluster.errors import Say
    from hack.testbed.profiles import Machine

DRIVER_ROOT: Final = Path("/run/nvidia/driver")
"""Where a driver container shows its root on the host; nodes of a lab do the same."""

_RECORD: Final = "host.json"
_STATE_FILES: Final = "libnvidia-mockstate.so.*"
_HOOK_SOURCE: Final = Path(__file__).resolve().parent.parent / "mock-host" / "cdi_hook.c"


@dataclass(frozen=True, slots=True, kw_only=True)
class HostTree:
    """A laid tree."""

    directory: Path
    machine: str
    """Name of the profile."""
    driver_version: str
    char_majors: dict[str, int]
    device_nodes: bool
    """False: regular files stand for device nodes (see `tree.write`)."""

    @classmethod
    def open(cls, directory: Path) -> HostTree:
        """The tree that `lay` made at `directory`. Raises LabError when there is none."""
        try:
            record = json.loads((directory / _RECORD).read_text())
        except FileNotFoundError as error:
            raise LabError(f"{directory} holds no mock host: lay one with `mock-host lay --into {directory}`") from error
        return cls(directory=directory, **record)

    @property
    def driver_root(self) -> Path:
        return self.directory / "root"

    @property
    def library_directory(self) -> Path:
        return self.driver_root / library_directory(architecture(platform.machine()))

    @property
    def proc(self) -> Path:
        return self.directory / "proc"

    @property
    def nvidia_proc(self) -> Path:
        """What `/proc/driver/nvidia` is on the node; the mocked library shows partitions there."""
        return self.proc / "driver/nvidia"

    @property
    def sys(self) -> Path:
        return self.directory / "sys"

    @property
    def dev(self) -> Path:
        return self.directory / "dev"

    def mount_commands(self, *, driver_root: Path = DRIVER_ROOT) -> list[mounts.Command]:
        """Commands that put the tree in place in a private mount namespace, in order; they look at this machine's /sys and /dev."""
        kernel_tree = f"{library_directory(architecture(platform.machine()))}/{KERNEL_TREE}"
        return mounts.plan(self.directory, real=mounts.look(self.directory), driver_root=driver_root, kernel_tree=kernel_tree)

    def apply(self, *, driver_root: Path = DRIVER_ROOT) -> None:
        """Put the tree in place in this process's mount namespace; nothing when it is. Raises LabError where that would do harm."""
        if self.is_applied():
            return
        mounts.refuse_public_namespace()
        for command in self.mount_commands(driver_root=driver_root):
            result = subprocess.run(command, capture_output=True, text=True, check=False)
            if result.returncode != 0:
                raise LabError(f"mock host {self.directory}: `{' '.join(command)}` failed: {result.stderr.strip()}")

    def is_applied(self) -> bool:
        """Whether `/dev` of this process's mount namespace is the tree's."""
        return self.dev.samefile("/dev")

    def partition_capabilities(self) -> dict[int, int]:
        """Minor and mode of every capability of the GPU and compute instances that exist, as `/proc/driver/nvidia` shows them."""
        files = (self.nvidia_proc / "capabilities").glob("gpu*/mig/gi*/**/access")
        return dict(_read_access(file) for file in files)

    def sync(self) -> None:
        """Make the device nodes of partitions that exist and remove those of partitions that are gone."""
        wanted = self.partition_capabilities()
        folder = self.dev / "nvidia-caps"
        for node in folder.glob("nvidia-cap*"):
            minor = int(node.name.removeprefix("nvidia-cap"))
            if minor not in {*wanted, CONFIG_CAPABILITY, MONITOR_CAPABILITY}:
                node.unlink()
        missing: list[CharDevice] = [capability_node(self.char_majors, minor, mode) for minor, mode in sorted(wanted.items())]
        write(self.dev, [node for node in missing if not (self.dev / node.path).exists()], device_nodes=self.device_nodes)


def cdi_hook_program(cache: Path, *, say: Say) -> Path:
    """A stand-in for `nvidia-cdi-hook` that works on a real container runtime. Raises LabError without a C compiler."""
    return static_program(_HOOK_SOURCE, cache=cache, say=say)


def lay(
    machine: Machine,
    into: Path,
    *,
    programs: DriverPrograms,
    driver_version: str | None = None,
    device_nodes: bool = True,
) -> HostTree:
    """Make the tree of `machine` at `into`, replacing one that is there. Raises LabError, PermissionError without root.

    `driver_version` is for a driver other than the profile's; the mocked NVML must be told the same. No mount namespace may be
    using a tree that is replaced. `device_nodes=False` is for unit tests without root (see `tree.write`).
    """
    version = driver_version or machine.driver_version
    tree = HostTree(
        directory=into,
        machine=machine.name,
        driver_version=version,
        char_majors=machine.char_majors,
        device_nodes=device_nodes,
    )
    into.mkdir(parents=True, exist_ok=True)
    _clear(tree)
    write(tree.driver_root, driver_root(version, architecture(platform.machine()), programs))
    write(tree.proc, proc_entries(machine, version))
    write(tree.sys, sys_entries(machine, version))
    write(tree.dev, dev_entries(machine), device_nodes=device_nodes)
    _update_library_cache(tree.driver_root)
    record = asdict(tree)
    del record["directory"]
    (into / _RECORD).write_text(json.dumps(record, indent=2) + "\n")
    return tree


def _clear(tree: HostTree) -> None:
    """Remove an earlier tree, the mocked machine's state apart."""
    if tree.dev.exists() and tree.is_applied():
        raise LabError(f"mock host {tree.directory} is in place in this mount namespace: leave the namespace, then lay it again")
    for folder in (tree.proc, tree.sys, tree.dev, tree.directory / "machine"):
        shutil.rmtree(folder, ignore_errors=not folder.exists())
    kept = set(tree.library_directory.glob(_STATE_FILES))
    for file in tree.driver_root.rglob("*"):
        if not (file.is_dir() and not file.is_symlink()) and file not in kept:
            file.unlink()


def _update_library_cache(root: Path) -> None:
    """Write `etc/ld.so.cache` as the driver's installer does. ldconfig is in /sbin, which PATH may not hold."""
    ldconfig = shutil.which("ldconfig", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if ldconfig is None:
        raise LabError("ldconfig is not there, and a driver root needs etc/ld.so.cache: install the C library's tools (libc-bin)")
    # -X: the links are laid already, and nothing may be added that the driver's own installer would not.
    result = subprocess.run([ldconfig, "-X", "-r", str(root)], capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise LabError(f"{ldconfig} -r {root} failed: {result.stderr.strip()}")


def _read_access(file: Path) -> tuple[int, int]:
    values = dict(re.findall(r"^(\w+): (\d+)$", file.read_text(), re.MULTILINE))
    return int(values["DeviceFileMinor"]), int(values["DeviceFileMode"])
