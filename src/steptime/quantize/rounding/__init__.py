"""Changes the constants of a network before they become bytes, so that less is lost."""
