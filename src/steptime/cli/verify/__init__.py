"""The commands of `steptime verify`."""
