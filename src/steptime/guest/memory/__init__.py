"""Who holds the memory of the process: parameters, states, graphs, and one step's storages.

In: models, optimizers, batches and graphs at a few moments, read and never changed. Out: the lines
`mem` in processes.jsonl. Start with `memory_probe.py`, which knows the moments; `holdings.py` books
bytes to parts, and `storages.py` follows the storages of one step.
"""
