"""The recipe file, and what a run needs to train with one."""
