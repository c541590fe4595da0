"""A Dynamic Resource Allocation driver for NVIDIA GPUs on Kubernetes 1.34 and later."""

DRIVER_NAME = "gpu.nvidia.com"
"""The DRA driver name; NVIDIA's own, so that manifests written for its driver need no edit."""

__version__ = "0.1.0"
"""The version of package, image and chart. A constant, so that it needs no installed metadata; tests hold all places to the same one."""
