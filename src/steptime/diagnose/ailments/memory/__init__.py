"""Ailments of memory: its limits, its leaks and its peak."""
