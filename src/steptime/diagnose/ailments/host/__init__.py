"""Ailments of the Python process: what it does while the arithmetic could run."""
