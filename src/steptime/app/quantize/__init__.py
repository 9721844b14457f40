"""Turns a trained network of the user's into one of bytes, and judges it."""
