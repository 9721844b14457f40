"""Ailments of the training's numbers and of what learns nothing."""
