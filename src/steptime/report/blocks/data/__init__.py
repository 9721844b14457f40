"""Blocks of the reports of `data`."""
