"""Checks of the ways between ranks, and of how open the machine is."""
