"""The machine: read, checked, and its ceilings measured."""
