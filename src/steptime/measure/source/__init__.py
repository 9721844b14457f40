"""Reads the script's own source when the command has ended: its lines, and what looks wrong."""
