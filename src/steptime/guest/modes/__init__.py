"""What a process of ours is there for: an object for each, with what it wants of the hooks."""
