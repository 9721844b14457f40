"""The values of a machine: what it has, what it reaches, and what came of its checks."""
