"""Judges a model against another by its predictions: paired, and at fixed shares of slices."""
