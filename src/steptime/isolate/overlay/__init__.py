"""Namespaces of its own for a child, with a layer in memory over every disk that it sees."""
