"""Reads what the checks judge: from the kernel, from NVML, and from tools that only read."""
