"""The commands of `steptime fit`."""
