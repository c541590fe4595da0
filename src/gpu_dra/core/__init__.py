"""What every room may use; knows nothing of GPUs or Kubernetes."""
