"""Take a lab away: processes, control groups, links, firewall rules, folder. Knows the lab by its name alone.

Works after a crash of anything and with state partly or wholly gone, and may be repeated. Nothing is stopped politely, since nothing
is kept; a control plane that is asked to stop while etcd goes first would hang.
"""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path

from hack.testbed.cluster import cgroups, network
from hack.testbed.cluster.commands import attempt
from hack.testbed.cluster.errors import LabError, Say
from hack.testbed.cluster.folder import LabFolder, labs_folder, locked_lab
from hack.testbed.cluster.processes import Process, all_recorded, by_id, kill, marked

_ROUNDS = 10  # a process that forks while it is hunted is found in the next round


def down(name: str, *, say: Say) -> None:
    """Remove everything of the lab. Raises LabError naming what could not be removed."""
    folder = LabFolder.of(name)
    if not folder.path.exists() and not leftovers(name):
        say(f"there is no lab {name}")
        return
    with locked_lab(folder):
        _kill_all(folder)
        network.remove(name)
        cgroups.remove(name)
        _unmount(folder.path)
        shutil.rmtree(folder.path)
    with contextlib.suppress(OSError):  # other labs are in it
        labs_folder().rmdir()
    remaining = leftovers(name)
    if remaining:
        raise LabError(f"lab {name} is not wholly gone: {', '.join(remaining)}; run down again")
    say(f"lab {name} is gone")


def leftovers(name: str) -> list[str]:
    """What is there of a lab, in words: processes, links, control groups, mounts."""
    folder = LabFolder(path=labs_folder() / name)
    return [
        *(f"process {process.pid}" for process in marked(folder)),
        *(f"link {link}" for link in network.leftovers(name)),
        *(f"control group {group}" for group in cgroups.leftovers(name)),
        *(f"mount {mount}" for mount in _mounts_below(folder.path)),
    ]


def _kill_all(folder: LabFolder) -> None:
    for _ in range(_ROUNDS):
        victims = _victims(folder)
        if not victims:
            return
        kill(victims)
    raise LabError(
        f"new processes of lab {folder.path.name} appear as fast as they are killed; end what starts them, then run down again"
    )


def _victims(folder: LabFolder) -> list[Process]:
    """What is recorded, what carries the lab's marker, and what is in its control groups."""
    contained = [process for pid in cgroups.members(folder.path.name) if (process := by_id(pid)) is not None]
    found = {process.pid: process for process in [*contained, *marked(folder), *all_recorded(folder)] if process.alive()}
    return list(found.values())


def _mounts_below(path: Path) -> list[Path]:
    points = (Path(line.split()[4]) for line in Path("/proc/self/mountinfo").read_text().splitlines())
    return [point for point in points if point.is_relative_to(path)]


def _unmount(path: Path) -> None:
    """A node's mounts die with its namespace; this is for what a person mounted here by hand, before it would be deleted through."""
    for point in reversed(_mounts_below(path)):
        done = attempt("umount", str(point))
        if done.returncode != 0:
            raise LabError(f"{point} is mounted and busy: {done.stderr.strip()}; unmount it, then run down again")
