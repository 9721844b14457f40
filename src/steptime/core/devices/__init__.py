"""Devices and machines by name: peaks, memory, price, condition and identity."""
