"""Blocks on what a step computes and holds: work, memory, operators, padding, layers."""
