"""Reads a release file with its tables, experiments and ledger."""
