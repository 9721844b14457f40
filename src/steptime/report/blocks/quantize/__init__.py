"""The report of a network that was turned into one of bytes."""
