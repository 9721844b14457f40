"""Lines of the script that take the time of its steps, and what the source shows there."""
