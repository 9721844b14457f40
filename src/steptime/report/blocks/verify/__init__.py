"""Blocks of the reports of `verify`."""
