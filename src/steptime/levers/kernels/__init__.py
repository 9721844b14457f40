"""Levers that compute the same operators by a faster kernel."""
