"""Studies of a command: `tune`, what they found, and the edit that they hand over."""
