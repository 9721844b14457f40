"""Records what is compared between whole runs of one script, and makes runs comparable."""
