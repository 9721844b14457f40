"""The bench on real processes: contained trials of the user's command."""
