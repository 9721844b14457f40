"""Trainings over seeds, of a recipe or of two commands."""
