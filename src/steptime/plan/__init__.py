"""Before there is a run: how much work, and what it would take. Functions of their arguments."""
