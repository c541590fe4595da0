"""What the node has and how to change it; knows nothing of Kubernetes."""
