"""How a command starts: its environment, the shims on PATH, and where the run comes from."""
