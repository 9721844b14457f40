"""The commands of `steptime plan`."""
