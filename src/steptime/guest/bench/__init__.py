"""Measures the script's own loader, in a contained child that does nothing else.

In: `bench` of the plan: which pass, and how long. Out: lines in `bench.jsonl` of the child's
folder. `loop_pass` times the loop with its loader and with a kept batch, `loader_passes` reads
batches apart and times their parts.
"""
