"""Change an object that others write too: read, decide, write what was read, and again when somebody was faster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gpu_dra.kube.errors import WriteConflict

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpu_dra.kube.api import KubeApi, Object, Resource

TRIES: Final = 5


async def change(
    api: KubeApi,
    resource: Resource,
    name: str,
    decide: Callable[[Object], Object | None],
    *,
    status: bool = False,
    namespace: str | None = None,
) -> Object | None:
    """The object as stored after `decide` changed it, or None when it had nothing to change; `status` writes that subresource.

    Raises GpuDraError, WriteConflict when somebody was faster each time.
    """
    for attempt in range(TRIES):
        body = decide(await api.get(resource, name, namespace=namespace))
        if body is None:
            return None
        try:
            if status:
                return await api.update_status(resource, body, namespace=namespace)
            return await api.update(resource, body, namespace=namespace)
        except WriteConflict:
            if attempt == TRIES - 1:
                raise
    return None
