"""The machine: what it has, and what it reaches."""
