"""Keeps a child of ours that reruns the user's command from doing harm."""
