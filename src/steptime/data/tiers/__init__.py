"""Keeps samples nearer than their source: in memory and on a fast disk, within budgets."""
