"""The official client's models as the judge of what we send: a name they do not know is a name that a server would drop."""

from typing import Any

from kubernetes import client

MODELS = {
    ("resource.k8s.io/v1", "ResourceSlice"): client.V1ResourceSlice,
    ("resource.k8s.io/v1", "ResourceClaim"): client.ResourceV1ResourceClaim,
    ("resource.k8s.io/v1", "ResourceClaimTemplate"): client.V1ResourceClaimTemplate,
    ("resource.k8s.io/v1", "DeviceClass"): client.V1DeviceClass,
    ("v1", "Event"): client.CoreV1Event,
    ("v1", "Node"): client.V1Node,
    ("v1", "Pod"): client.V1Pod,
}


def check_payload(payload: dict[str, Any]) -> None:
    """Raises ValueError (pydantic's, with the path of the field) for unknown names, wrong types and missing required fields."""
    MODELS[payload["apiVersion"], payload["kind"]].model_validate(payload)
