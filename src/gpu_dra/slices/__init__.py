"""Inventory to ResourceSlices; knows nothing of claims."""
