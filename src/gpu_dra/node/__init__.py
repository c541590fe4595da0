"""Composition root of the node: sockets, services, start and stop order."""
