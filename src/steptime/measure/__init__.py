"""Starts the user's command, reads what the guest wrote, and measures."""
