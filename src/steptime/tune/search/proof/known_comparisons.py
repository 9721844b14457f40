"""All comparisons of a study, each with what its answers said so far."""

from __future__ import annotations

import math

from steptime.core.stats import median
from steptime.tune.search.proof.comparison_series import ComparisonSeries
from steptime.tune.search.search_notes import Key, key_of
from steptime.tune.values.study_values import Applied, State


class KnownComparisons:
    """One series for each comparison, in one process or between processes."""

    def __init__(self) -> None:
        self._live: dict[tuple[Key, Key], ComparisonSeries] = {}
        self._between: dict[tuple[Key, Key], ComparisonSeries] = {}

    def live(self, reference: State, state: State) -> ComparisonSeries:
        """What is known of a comparison in one process."""
        key = (key_of(reference), key_of(state))
        return self._live.setdefault(key, ComparisonSeries(state=state, reference=reference))

    def between(self, reference: State, state: State) -> ComparisonSeries:
        """What is known of a comparison between processes."""
        key = (key_of(reference), key_of(state))
        return self._between.setdefault(
            key, ComparisonSeries(state=state, reference=reference, is_between=True)
        )

    @property
    def begun(self) -> tuple[ComparisonSeries, ...]:
        """Those of levers with something else, of which anything is known."""
        known = (*self._live.values(), *self._between.values())
        return tuple(
            one for one in known if key_of(one.state) != key_of(one.reference) and one.wall
        )

    @property
    def loops_s(self) -> set[float]:
        """A step of the loop as written [s], of each process of its own; live ones pay for it."""
        known = (it for it in self._between.values() if not it.reference)
        return {one for series in known for one in series.reference_loop_s}

    @property
    def alone(self) -> tuple[ComparisonSeries, ...]:
        """Levers alone that were compared with the command as written and did not fail."""
        return tuple(one for one in self.begun if len(one.state) == 1 and not one.reference)

    def gain_of(self, state: State) -> float:
        """What its levers gave one by one, each where it was seen most, as a log speedup.

        One that was seen with others alone counts as nothing.
        """
        return math.fsum(self._gain_of_one(one) for one in state)

    def _gain_of_one(self, one: Applied) -> float:
        seen = [series for series in self.begun if series.added == (one,)]
        longest = max(seen, key=lambda series: len(series.wall), default=None)
        return 0.0 if longest is None else median(longest.wall)

    def compile_s(self, state: State) -> float:
        """One-off compile time of a state: the most seen for it, else for a part of it."""
        names = {one.name for one in state}
        parts = [s.compile_s for s in self._live.values() if {one.name for one in s.state} <= names]
        return self._own_compile_s(state) or max(parts, default=0.0)

    def was_compiled(self, state: State) -> bool:
        """Whether just this state was compiled in an earlier process."""
        return self._own_compile_s(state) > 0

    def _own_compile_s(self, state: State) -> float:
        own = [s.compile_s for s in self._live.values() if key_of(s.state) == key_of(state)]
        return max(own, default=0.0)
