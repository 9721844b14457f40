"""Which states one process may hold at a time, so that their comparison is fair."""

from __future__ import annotations

from collections.abc import Sequence

from steptime.levers.base import Facts
from steptime.tune.search.proof.comparison_series import ComparisonSeries
from steptime.tune.values.study_values import State

MAX_LIVE_STATES = 8
"""In one process: with more, the reference's blocks lie too far from a state's own."""

MAX_COMPILED_STATES = 4
"""Sixteen states made eight graphs, then torch's recompile limit and silent eager."""

COMPILE = "compile"
"""Name of the lever that compiles the model."""


def max_states(facts: Facts, states: Sequence[State]) -> int:
    """How many states one process may hold, the reference among them."""
    is_compiled = facts.uses_compile or any(
        one.name == COMPILE for state in states for one in state
    )
    return MAX_COMPILED_STATES if is_compiled else MAX_LIVE_STATES


def live_groups(
    facts: Facts, reference: State, due: Sequence[ComparisonSeries]
) -> list[list[ComparisonSeries]]:
    """The comparisons in groups that one process may hold, compiled ones apart."""
    groups: list[list[ComparisonSeries]] = []
    for is_compiled in (False, True):
        some = [s for s in due if any(one.name == COMPILE for one in s.state) is is_compiled]
        size = max_states(facts, [reference, *(one.state for one in some)]) - 1
        groups += [some[i : i + size] for i in range(0, len(some), size)]
    return groups
