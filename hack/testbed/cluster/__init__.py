"""A real Kubernetes on one Linux machine, from one command: see `hack/cluster --help`; tests use `lab.Lab`.

Standard library only, so that it runs before any virtual environment exists.
"""
