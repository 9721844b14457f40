"""The commands of `steptime data`."""
