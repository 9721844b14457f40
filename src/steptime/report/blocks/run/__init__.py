"""Blocks of the report of a run."""
