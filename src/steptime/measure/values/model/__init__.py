"""Values of what a step's model does: its work, memory, operators and numbers."""
