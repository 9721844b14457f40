"""Checks of driver, CUDA and torch against each other, and of their caches."""
