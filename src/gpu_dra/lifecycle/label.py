"""The label by which GPU nodes are found: `nvidia.com/gpu.present`, as the GPU operator has it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gpu_dra.kube.api import NODES
from gpu_dra.kube.change import change

if TYPE_CHECKING:
    from collections.abc import Collection

    from gpu_dra.kube.api import KubeApi, Object

GPU_PRESENT: Final = "nvidia.com/gpu.present"


async def label_node(api: KubeApi, node_name: str, *, present: bool) -> bool:
    """Make the label say so; True when it had to be written. A node that never had a GPU gets no label. Raises GpuDraError."""
    wanted = "true" if present else "false"

    def decide(node: Object) -> Object | None:
        labels = node["metadata"].get("labels") or {}
        return None if labels.get(GPU_PRESENT, "false") == wanted else _with_labels(node, {**labels, GPU_PRESENT: wanted})

    return await change(api, NODES, node_name, decide) is not None


async def unlabel_node(api: KubeApi, node_name: str, names: Collection[str]) -> None:
    """Take labels away. Raises GpuDraError."""

    def decide(node: Object) -> Object | None:
        labels = node["metadata"].get("labels") or {}
        others = {key: value for key, value in labels.items() if key not in names}
        return None if others == labels else _with_labels(node, others)

    await change(api, NODES, node_name, decide)


def _with_labels(node: Object, labels: dict[str, str]) -> Object:
    return {**node, "metadata": {**node["metadata"], "labels": labels}}
