"""Ailments of several ranks: exchanges, stragglers, stalls and desyncs."""
