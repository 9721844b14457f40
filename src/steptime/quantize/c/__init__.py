"""Writes an integer network as C: no memory of the heap, no floating point, one arena of bytes."""
