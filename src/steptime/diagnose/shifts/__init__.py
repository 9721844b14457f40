"""Finds where the step time changed and stayed so, and what changed with it."""
