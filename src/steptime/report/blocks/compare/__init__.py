"""Blocks of the reports of `compare`."""
