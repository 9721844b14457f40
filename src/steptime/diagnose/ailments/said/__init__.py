"""Ailments that a library itself warns of."""
