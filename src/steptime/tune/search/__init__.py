"""The search: which levers are tried in which order, as a function of a bench's answers."""
