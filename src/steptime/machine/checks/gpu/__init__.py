"""Checks of NVIDIA GPUs, their driver and what it wrote to the log."""
