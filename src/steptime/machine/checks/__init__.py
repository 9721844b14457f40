"""Checks the machine with pure functions of facts, one file per subject, and reads the facts."""
