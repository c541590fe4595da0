"""Spread devices over slices inside the API's limit.

Groups (the devices of one GPU) keep their order and are kept together where they fit, so that what happens on one GPU touches as few
slices as possible. Nothing here looks at what is stored: the same groups always give the same slices, on any node and after any restart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpu_dra.slices.pool import DesiredSlice

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gpu_dra.kube.api import Object


def pack(groups: Iterable[Sequence[Object]], *, limit: int) -> tuple[DesiredSlice, ...]:
    """Fill slices of at most `limit` devices one after the other; one empty slice when there is no device.

    A group that is larger than a whole slice is split.
    """
    slices: list[list[Object]] = [[]]
    for group in groups:
        for start in range(0, len(group), limit):
            chunk = group[start : start + limit]
            if len(slices[-1]) + len(chunk) > limit:
                slices.append([])
            slices[-1].extend(chunk)
    return tuple(DesiredSlice(devices=tuple(devices)) for devices in slices)
