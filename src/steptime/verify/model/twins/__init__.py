"""Finds rows of one table that stand in another: by hashes, and by pieces of their text."""
