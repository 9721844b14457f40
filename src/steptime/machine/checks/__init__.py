"""Checks of the machine: pure functions of facts, one file a subject, and the facts' readers."""
