"""What is known of how levers act beside each other, before anything is measured.

Levers are named here because the mechanism is theirs. docs/explanation/how-we-tune.md says what is
made of it.
"""

from __future__ import annotations

SHARES_CORES = frozenset({"num_threads"})
"""Live levers that share the cores with a loader: they are tried again beside levers that give
cores away or make the input shorter."""

MAY_SLOW_DOWN = SHARES_CORES | {
    *("micro_batches", "activation_checkpointing", "selective_checkpointing"),
    *("optimizer_in_backward", "offload_activations", "no_foreach"),
}
"""Levers that slow down as easily as they help, or that buy memory with time: no part of a bundle
of levers of which nothing was seen yet."""
