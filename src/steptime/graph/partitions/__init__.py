"""Graphs divided among ranks: partitions, their files and memory, and features that others own."""
