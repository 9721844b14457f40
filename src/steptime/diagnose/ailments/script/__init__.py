"""Ailments of the script itself, and step times that changed and stayed so."""
