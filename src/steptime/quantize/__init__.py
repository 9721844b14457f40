"""Turns a trained network into one of bytes, for processors without floating point."""
