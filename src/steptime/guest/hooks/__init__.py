"""Hooks on torch's own classes and registries: models, backward, optimizers, loaders.

In: torch. Out: markers in the calling thread's journal, and the calls in which probes and levers
act. Start with `context.py`, which holds what all hooks share; each other file hooks one part of
torch, and `patching.py` shows how a wrapper takes the place of torch's function.
"""
