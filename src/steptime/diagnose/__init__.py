"""Judges a Measurement: what holds the steps back, by rules with stated thresholds."""
