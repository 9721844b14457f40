"""Blocks of the reports of `machine`."""
