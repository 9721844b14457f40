"""Checks of memory, disks, limits and variables."""
