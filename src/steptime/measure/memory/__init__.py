"""Measures the memory of a run, from what its processes reported."""
