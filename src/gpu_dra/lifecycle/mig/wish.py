"""What MIG geometry is wanted: mig-parted's file format, and the configurations that need no file.

Source: `version: v1` of NVIDIA's mig-parted; the generated names are those of its MIG manager since v26.3. Pure. A GPU that no rule
speaks of is left as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import yaml

from gpu_dra.core.errors import Refused

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gpu_dra.lifecycle.mig.geometry import Board

FILE_VERSION: Final = "v1"
_KEYS: Final = {"device-filter", "devices", "mig-enabled", "mig-devices"}
_BALANCED: Final = {7: {1: 2, 2: 1, 3: 1}, 4: {1: 2, 2: 1}}
"""Instances by compute slices in `all-balanced`, by compute slices of the board."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """How one GPU is to be cut; `partitions` counts instances by profile name."""

    enabled: bool
    partitions: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One entry of a configuration."""

    wish: Wish
    indices: frozenset[int] | None
    """NVML indices; None for `all`."""
    pci_ids: frozenset[str]
    """Device and vendor as mig-parted writes them, `0x20b010de`; empty for any."""
    path: str

    def speaks_of(self, board: Board) -> bool:
        """Whether the rule is about this GPU."""
        return (self.indices is None or board.index in self.indices) and (not self.pci_ids or board.pci_id in self.pci_ids)


def parse(text: str, *, where: str) -> dict[str, tuple[Rule, ...]]:
    """The configurations of a file by name. Raises Refused with file and field."""
    try:
        content = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError) as error:  # ValueError: a date or a number that is none
        raise Refused(f"{where} is no YAML: {' '.join(str(error).split())}") from error
    top = _mapping(content, where, {"version", "mig-configs"})
    if top.get("version") != FILE_VERSION:
        raise Refused(f"{where}: version: {top.get('version')!r} is not known; this version reads {FILE_VERSION}")
    configs = _mapping(top.get("mig-configs"), f"{where}: mig-configs", None)
    return {str(name): _rules(entries, f"{where}: mig-configs.{name}") for name, entries in configs.items()}


def wishes(name: str, boards: Sequence[Board], configs: Mapping[str, tuple[Rule, ...]]) -> dict[int, Wish]:
    """What configuration `name` wants, by NVML index. One of the file wins over a generated one of its name. Raises Refused."""
    if name in configs:
        return _by_rules(configs[name], boards)
    found = {board.index: wish for board in boards if (wish := generated(board).get(name)) is not None}
    if not found:
        known = sorted({*configs, *(each for board in boards for each in generated(board))})
        raise Refused(f"there is no MIG configuration {name!r} for this node's GPUs; there are: {', '.join(known) or 'none'}")
    return found


def generated(board: Board) -> dict[str, Wish]:
    """The configurations that the board's own profiles give; none where it cannot do MIG."""
    if not board.can_mig:
        return {}
    found = {"all-disabled": Wish(enabled=False), "all-enabled": Wish(enabled=True)}
    for profile in board.profiles:
        found[f"all-{profile.name.replace('+', '.')}"] = Wish(enabled=True, partitions={profile.name: profile.instances})
    balanced = {}
    for slices, count in _BALANCED.get(max((profile.slices for profile in board.profiles), default=0), {}).items():
        plain = [profile for profile in board.profiles if profile.slices == slices and "+" not in profile.name]
        if not plain:
            return found
        balanced[min(plain, key=lambda profile: profile.memory_mib).name] = count
    return found | ({"all-balanced": Wish(enabled=True, partitions=balanced)} if balanced else {})


def _by_rules(rules: Iterable[Rule], boards: Sequence[Board]) -> dict[int, Wish]:
    found: dict[int, Wish] = {}
    for rule in rules:
        for index in sorted((rule.indices or frozenset()) - {board.index for board in boards}):
            raise Refused(f"{rule.path}.devices: there is no GPU {index}; this node has 0 to {len(boards) - 1}")
        for board in filter(rule.speaks_of, boards):
            if board.can_mig:
                found[board.index] = rule.wish
            elif rule.indices is not None and rule.wish.enabled:
                raise Refused(f"{rule.path}.devices: GPU {board.index} ({board.product_name}) cannot do MIG")
    return found


def _rules(entries: object, path: str) -> tuple[Rule, ...]:
    if not isinstance(entries, list):
        raise Refused(f"{path}: must be a list of entries, not {_kind(entries)}")
    return tuple(_rule(entry, f"{path}[{number}]") for number, entry in enumerate(entries))


def _rule(entry: object, path: str) -> Rule:
    fields = _mapping(entry, path, _KEYS)
    enabled = fields.get("mig-enabled")
    if not isinstance(enabled, bool):
        raise Refused(f"{path}.mig-enabled: must be true or false, not {_kind(enabled)}")
    if enabled and "mig-devices" not in fields:
        raise Refused(f"{path}.mig-devices: is missing; write {{}} for MIG mode without partitions")
    partitions = _partitions(fields.get("mig-devices") or {}, f"{path}.mig-devices")
    if partitions and not enabled:
        raise Refused(f"{path}.mig-devices: must be empty where mig-enabled is false")
    return Rule(
        wish=Wish(enabled=enabled, partitions=partitions),
        indices=_indices(fields.get("devices"), f"{path}.devices"),
        pci_ids=_pci_ids(fields.get("device-filter", []), f"{path}.device-filter"),
        path=path,
    )


def _partitions(value: object, path: str) -> dict[str, int]:
    found = {}
    for name, count in _mapping(value, path, None).items():
        if not isinstance(count, int) or isinstance(count, bool) or count < 0:
            raise Refused(f"{path}.{name}: must be a number of partitions, not {_kind(count)}")
        if str(name).split("g.", 1)[0].find("c.") >= 0:
            raise Refused(
                f"{path}.{name}: partitions smaller than their GPU instance are not offered; write the profile without 'c.'"
            )
        if count:
            found[str(name)] = count
    return found


def _indices(value: object, path: str) -> frozenset[int] | None:
    if value == "all":
        return None
    if isinstance(value, int) and not isinstance(value, bool):
        raise Refused(f"{path}: {value} is a bare number; write [{value}], or all")
    if not isinstance(value, list) or not all(isinstance(each, int) and not isinstance(each, bool) for each in value):
        raise Refused(f"{path}: must be all or a list of GPU indices, not {_kind(value)}")
    return frozenset(value)


def _pci_ids(value: object, path: str) -> frozenset[str]:
    values = [value] if isinstance(value, str) else value
    if not isinstance(values, list) or not all(isinstance(each, str) for each in values):
        raise Refused(f"{path}: must be a PCI id such as 0x20B010DE or a list of them, not {_kind(value)}")
    return frozenset(each.lower() for each in values)


def _mapping(value: object, path: str, allowed: set[str] | None) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise Refused(f"{path}: must be a mapping, not {_kind(value)}")
    unknown = sorted(str(key) for key in value if allowed is not None and key not in allowed)
    if unknown:
        raise Refused(f"{path}: unknown field {', '.join(unknown)}; known are {', '.join(sorted(allowed or ()))}")
    return value


def _kind(value: object) -> str:
    return "nothing" if value is None else f"{value!r}"
