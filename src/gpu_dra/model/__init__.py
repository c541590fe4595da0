"""Frozen value objects shared by the rooms; no I/O."""
