"""The seam to the Kubernetes API; knows nothing of GPUs."""
