"""Blocks of the reports of studies and sweeps."""
