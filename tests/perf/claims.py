"""Claims that are born allocated: created, and their status written as the scheduler would."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from gpu_dra import DRIVER_NAME
from gpu_dra.kube.api import RESOURCE_CLAIMS
from gpu_dra.model.claim import ClaimRef

if TYPE_CHECKING:
    from gpu_dra.kube.api import KubeApi


class ClaimFactory:
    """Makes claims for one node in one namespace; the namespace allows admin access."""

    def __init__(self, api: KubeApi, *, node: str, namespace: str) -> None:
        self._api = api
        self._node = node
        self._namespace = namespace
        self._numbers = itertools.count()

    async def create(self, *devices: str, admin: bool = False) -> ClaimRef:
        """A claim that is allocated `devices` of the node."""
        exactly: dict[str, Any] = {"deviceClassName": "gpu.nvidia.com", "count": len(devices), "allocationMode": "ExactCount"}
        if admin:
            exactly["adminAccess"] = True
        body = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": f"claim-{next(self._numbers)}", "namespace": self._namespace},
            "spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}},
        }
        created = await self._api.create(RESOURCE_CLAIMS, body, namespace=self._namespace)
        created["status"] = {
            "allocation": {
                "devices": {"results": [self._result(device, admin=admin) for device in devices]},
                "nodeSelector": {
                    "nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [self._node]}]}]
                },
            }
        }
        await self._api.update_status(RESOURCE_CLAIMS, created, namespace=self._namespace)
        metadata = created["metadata"]
        return ClaimRef(namespace=self._namespace, name=metadata["name"], uid=metadata["uid"])

    async def delete(self, ref: ClaimRef) -> None:
        """Take the claim away."""
        await self._api.delete(RESOURCE_CLAIMS, ref.name, namespace=ref.namespace)

    def _result(self, device: str, *, admin: bool) -> dict[str, Any]:
        result = {"request": "gpu", "driver": DRIVER_NAME, "pool": self._node, "device": device}
        return {**result, "adminAccess": True} if admin else result
