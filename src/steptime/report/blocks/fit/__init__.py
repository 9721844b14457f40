"""Blocks of the reports of `fit` and `plan`."""
