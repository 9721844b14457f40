"""The command line: one thin file a command; the only place that prints."""
