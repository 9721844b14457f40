"""What is known of how levers act beside each other, before anything is measured.

Levers are named here because the mechanism is theirs. docs/explanation/how-we-tune.md says what is
made of it.
"""

from __future__ import annotations

SHARES_CORES = frozenset({"num_threads"})
"""Live levers that share the cores with a loader: they are tried again beside levers that give
cores away or make the input shorter."""

NEVER_FIRST = frozenset({"wait_policy"})
"""Its bound is all that operators take, and it gives little of that: others come first."""

PAID_ONCE = frozenset({"compile", "preloaded_samples"})
"""What they do takes time once, before the steps are faster: a run must be long enough for it."""

DOES_MORE = {"module_precision": "autocast"}
"""A lever that does what the other does, and more. Where either can be left out, it is this one:
what it changes more is refused more often."""

SPARES = {"preloaded_samples": "dataloader"}
"""A lever that leaves the other nothing to do, so it has its turn first: batches that are taken out
of samples that were made need no workers."""

MAY_SLOW_DOWN = SHARES_CORES | {
    *("micro_batches", "activation_checkpointing", "selective_checkpointing"),
    *("optimizer_in_backward", "offload_activations", "no_foreach"),
}
"""Levers that slow down as easily as they help, or that buy memory with time: no part of a bundle
of levers of which nothing was seen yet."""
