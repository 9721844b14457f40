"""Ailments of the input: the step waits for data, or the loader costs what it need not."""
