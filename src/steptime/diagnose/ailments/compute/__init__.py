"""Ailments of the arithmetic: which part of it takes the time, and by which kernel."""
