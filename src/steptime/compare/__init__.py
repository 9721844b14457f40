"""Compares sets of runs: what was changed between them, and what it did."""
