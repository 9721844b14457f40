"""Ailments of useful work: padding, and ranks of uneven work."""
