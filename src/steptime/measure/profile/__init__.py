"""Folds the traces that torch's profiler wrote into the profile of a run."""
