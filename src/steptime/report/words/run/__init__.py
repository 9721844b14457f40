"""Words of the reports of runs and comparisons."""
