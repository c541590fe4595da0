"""Container Device Interface specs; knows nothing of claims or Kubernetes."""
