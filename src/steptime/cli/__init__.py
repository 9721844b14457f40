"""The command line: one thin file per command; this is the only place that prints."""
