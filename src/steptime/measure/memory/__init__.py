"""The memory of a run, from what its processes said of themselves."""
