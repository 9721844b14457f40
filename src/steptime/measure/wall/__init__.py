"""The time of a run: which of it trained, what stood still, and what went on beside it."""
