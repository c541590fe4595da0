"""Recognise the state file of NVIDIA's own driver in our directory; it is read, reported and left alone.

Its v2 form (`checkpoint.json`): `v2.preparedClaims`, keyed by claim UID. Claims it prepared keep their running pods; they are unknown to
our journal, so their devices must be free of pods before this driver hands them out again.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

FILE_NAME = "checkpoint.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class NvidiaCheckpoint:
    """What NVIDIA's driver left behind."""

    path: Path
    claims: tuple[str, ...]
    """UIDs it has prepared or begun to prepare."""
    unreadable: str = ""
    """Why the file could not be understood; empty when it could."""


def find_nvidia_checkpoint(plugin_directory: Path) -> NvidiaCheckpoint | None:
    """The file in this directory; None when there is none. Never raises: a foreign file must not keep us from starting. Blocking."""
    path = plugin_directory / FILE_NAME
    try:
        content = json.loads(path.read_bytes())
        prepared = content["v2"]["preparedClaims"] or {}
        return NvidiaCheckpoint(path=path, claims=tuple(sorted(prepared)))
    except FileNotFoundError:
        return None
    except OSError as error:
        return NvidiaCheckpoint(path=path, claims=(), unreadable=error.strerror or str(error))
    except (ValueError, KeyError, TypeError) as error:
        return NvidiaCheckpoint(path=path, claims=(), unreadable=f"not a version 2 checkpoint: {error!r}")
