"""Where a step's time went, by what the machine can do at most."""
