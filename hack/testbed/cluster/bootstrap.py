"""Everything a lab needs before it can start, obtained where it is missing: OS packages, Go, and the built programs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from hack.testbed.cluster.build import ensure_built, tool_folder
from hack.testbed.cluster.catalog import tools_for
from hack.testbed.cluster.errors import LabError, Say
from hack.testbed.cluster.go_toolchain import ensure_go
from hack.testbed.cluster.packages import TO_BUILD, TO_RUN, ensure_packages


@dataclass(frozen=True, slots=True, kw_only=True)
class Toolbox:
    """Folders of built programs, one per tool."""

    folders: tuple[Path, ...]

    def __getitem__(self, program: str) -> str:
        """Absolute path of one program. Raises LabError."""
        for folder in self.folders:
            if (folder / program).exists():
                return str(folder / program)
        raise LabError(f"{program} is not in {', '.join(map(str, self.folders))}; remove these folders and run hack/bootstrap")

    @property
    def search_path(self) -> str:
        """A PATH with the built programs before the system's: containerd looks up its shim and runc there."""
        return ":".join([*map(str, self.folders), "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"])

    @property
    def environment(self) -> dict[str, str]:
        """All that a program of the lab sees of its environment: nothing of the person's own, proxies and Go settings included."""
        return {"PATH": self.search_path, "HOME": "/root", "LANG": "C.UTF-8"}


def toolbox(minor: str, *, say: Say) -> Toolbox:
    """The programs for one Kubernetes version, built now if they were not (minutes). Raises LabError."""
    ensure_packages(TO_RUN, say=say)
    tools = tools_for(minor)
    if all(tool_folder(tool).exists() for tool in tools):
        return Toolbox(folders=tuple(tool_folder(tool) for tool in tools))
    ensure_packages(TO_BUILD, say=say)
    go = ensure_go(say=say)
    return Toolbox(folders=tuple(ensure_built(tool, go=go, say=say) for tool in tools))
