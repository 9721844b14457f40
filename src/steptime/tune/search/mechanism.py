"""What is known of how levers act beside each other, before anything is measured.

Levers are named here because the mechanism is theirs. docs/explanation/how-we-tune.md says what is
made of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from steptime.tune.values.study_values import Applied, State

SHARES_CORES = frozenset({"num_threads"})
"""Live levers that share the cores with a loader: they are tried again beside levers that give
cores away or make the input shorter."""

NEVER_FIRST = frozenset({"wait_policy"})
"""Its bound is all that operators take, and it gives little of that: others come first."""

PAID_ONCE = frozenset({"compile", "preloaded_samples"})
"""What they do takes time once, before the steps are faster: a run must be long enough for it."""

PAYS_LATER = frozenset({"preloaded_samples", "dataset_cache", "decoded_cache", "frozen_cache"})
"""What keeps in the first epoch what later ones need: a trial reads that ahead, a run does not."""

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

FAMILIES = (
    frozenset({"matmul_precision", "matmul_library", "module_precision", "autocast"}),
    frozenset({"whole_batch_fetch", "preloaded_samples", "dataset_cache"}),
)
"""Levers that do the same to the same numbers or samples: of each family a state has one at most,
so that leaving a lever out shows what it gives."""

ROUNDED_MORE: Sequence[tuple[str, Mapping[str, object]]] = (
    ("matmul_precision", {"precision": "medium"}),
    ("module_precision", {"float32": "ends_and_norms"}),
    ("module_precision", {"float32": "ends"}),
    ("autocast", {"dtype": "bf16"}),
    ("module_precision", {"float32": "none", "low": True}),
)
"""What rounds to bf16, that which keeps most in float32 first: where one of them trains worse, so
do those behind it."""


def are_related(name: str, other: str) -> bool:
    """Whether two levers are of one family, or the same."""
    return name == other or any({name, other} <= family for family in FAMILIES)


def with_instead(state: State, one: Applied) -> State:
    """The state with a lever, without those of its family."""
    return (*(it for it in state if not are_related(it.name, one.name)), one)


def one_of_each(members: Sequence[Applied]) -> State:
    """The members, of each family the first one."""
    kept: list[Applied] = []
    for one in members:
        if not any(are_related(one.name, it.name) for it in kept):
            kept.append(one)
    return tuple(kept)


def by_rounding(known: Sequence[Applied]) -> list[Applied]:
    """Those of the settings that round to bf16, what keeps most in float32 first."""
    return [it for name, some in ROUNDED_MORE for it in known if _is(it, name, some)]


def _is(one: Applied, name: str, settings: Mapping[str, object]) -> bool:
    return one.name == name and dict(one.settings) == dict(settings)
