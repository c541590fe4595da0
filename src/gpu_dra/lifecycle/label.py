"""The label by which GPU nodes are found: `nvidia.com/gpu.present`, as the GPU operator has it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from gpu_dra.kube.api import NODES
from gpu_dra.kube.errors import WriteConflict

if TYPE_CHECKING:
    from gpu_dra.kube.api import KubeApi

log = logging.getLogger(__name__)

GPU_PRESENT: Final = "nvidia.com/gpu.present"
_TRIES: Final = 5


async def label_node(api: KubeApi, node_name: str, *, present: bool) -> bool:
    """Make the label say so; True when it had to be written. A node that never had a GPU gets no label. Raises GpuDraError."""
    for attempt in range(_TRIES):
        node = await api.get(NODES, node_name)
        labels = node["metadata"].get("labels") or {}
        wanted = "true" if present else "false"
        if labels.get(GPU_PRESENT, "false") == wanted:
            return False
        try:
            await api.update(NODES, {**node, "metadata": {**node["metadata"], "labels": {**labels, GPU_PRESENT: wanted}}})
        except WriteConflict:  # the kubelet and others write the same object
            if attempt == _TRIES - 1:
                raise
            continue
        log.info("labelled node", extra={"node": node_name, "label": f"{GPU_PRESENT}={wanted}"})
        return True
    return False


async def unlabel_node(api: KubeApi, node_name: str) -> None:
    """Take the label away. Raises GpuDraError."""
    for attempt in range(_TRIES):
        node = await api.get(NODES, node_name)
        labels = {key: value for key, value in (node["metadata"].get("labels") or {}).items() if key != GPU_PRESENT}
        try:
            await api.update(NODES, {**node, "metadata": {**node["metadata"], "labels": labels}})
        except WriteConflict:
            if attempt == _TRIES - 1:
                raise
            continue
        return
