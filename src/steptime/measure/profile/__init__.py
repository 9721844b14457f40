"""The profile of a run, folded from the traces that torch's profiler left."""
