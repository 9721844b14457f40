"""Checks of threads against cores."""
