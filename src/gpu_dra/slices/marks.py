"""By what this product's traces in the API are known: by whoever writes them and by whoever clears them away."""

from __future__ import annotations

from typing import Final

OURS: Final = {"app.kubernetes.io/managed-by": "gpu-dra"}
"""Label of every slice that this product wrote."""

NODE_CONDITION: Final = "NvidiaGPUsOffered"
"""Type of the condition on Node objects."""
