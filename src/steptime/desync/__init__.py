"""Compares what the ranks of a training called, and finds where they left each other.

In: the newest calls of each rank, and what its stack shows. Out: a `Desync`. All functions are
pure; `watch` reads the records and asks.
"""
