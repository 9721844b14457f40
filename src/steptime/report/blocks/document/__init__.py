"""Blocks of what `steptime schema` says."""
