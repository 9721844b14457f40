"""Runs that stand still: seen, with the stacks and collectives of each rank."""
