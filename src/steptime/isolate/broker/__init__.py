"""The launcher decides the system calls of a child that a filter alone cannot judge."""
