"""Compares two sets of runs with one function, `compare`.

In: the runs of A and of B, stored runs of the same script, and the limit of the gate. Out: a
`Comparison`. `spread` makes the intervals, `alike` decides what may be compared.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import fmean, stdev

from steptime.compare import alike
from steptime.compare.spread import (
    MIN_DEGREES_SINGLE,
    MIN_PAIRS,
    MIN_SPREAD,
    Pool,
    Values,
    combine,
    difference,
    needs_stored,
    paired_difference,
    pool,
    pool_neighbors,
    runs_for,
)
from steptime.compare.values import (
    ComparedRun,
    CompareOutcome,
    Comparison,
    Effect,
    Estimate,
    Gate,
    GateOutcome,
    Spread,
)
from steptime.measure.values.measurement import PHASES, SPANS

Runs = Sequence[ComparedRun]
USUAL_LIMIT = 0.05
"""The difference that the runs should be able to show where no limit is given."""

Measure = Callable[[ComparedRun], float | None]
"""A number of a run; None where a stored run lacks it. The compared runs always have it."""


def compare(
    a: Runs,
    b: Runs,
    *,
    stored: Runs = (),
    limit: float | None = None,
    in_pairs: bool = False,
) -> Comparison:
    """Return what differs between the runs of A and those of B.

    Args:
        a, b: at least one run each.
        stored: other runs of the same store; this function leaves out those of another kind.
        limit: B may take longer by this fraction of A's step time; None means there is no gate.
        in_pairs: the n-th runs of A and B, as many of each, were made side by side.
    """
    bare = Comparison(
        a=tuple(a),
        b=tuple(b),
        outcome=CompareOutcome.NOT_COMPARABLE,
        reason=None,
        step=None,
        phases=(),
        spans=(),
        finish=None,
        num_steps=None,
        spread=None,
        changes=alike.find_changes(a, b),
        obstacles=alike.find_obstacles(a, b),
        remarks=alike.find_remarks(a, b),
    )
    final = [obstacle for obstacle in bare.obstacles if obstacle.is_final]
    if final:
        found = replace(bare, reason=final[0].code)
    else:
        wanted = USUAL_LIMIT if limit is None or limit <= 0 else limit
        found = _compared(bare, _Pairs(a, b) if in_pairs else _Noise(a, b, stored), wanted=wanted)
    if limit is None:
        return found
    change = None if found.step is None else found.step.change
    return replace(found, gate=Gate(limit=limit, outcome=judge(change, limit=limit)))


def judge(change: Estimate | None, *, limit: float) -> GateOutcome:
    """Return whether B is slower by more than the limit.

    It fails where the estimate is beyond the limit and the whole interval is above no change. It
    passes where the whole interval is within the limit. A change that is not a number never passes.
    """
    if change is None or change.low is None or change.high is None:
        return GateOutcome.UNDECIDED
    if not all(map(math.isfinite, (change.low, change.value, change.high))):
        return GateOutcome.UNDECIDED
    if change.value > limit and change.low > 0:
        return GateOutcome.FAILED
    return GateOutcome.PASSED if change.high <= limit else GateOutcome.UNDECIDED


def _compared(bare: Comparison, noise: _Noise | _Pairs, *, wanted: float) -> Comparison:
    a, b = bare.a, bare.b
    step = _ratio("step", a, b, _step_s, noise)
    num_steps = round(fmean([run.num_steps for run in a]))
    outcome, reason = _outcome(step.change, noise)
    spread = noise.spread
    seen = {name for run in (*a, *b) for name in run.phases_s}
    return replace(
        bare,
        outcome=outcome,
        reason=reason,
        step=step,
        phases=tuple(_plain(n, a, b, _phase_s(n), noise) for n in PHASES if n in seen),
        spans=_spans(a, b, noise),
        finish=_finish(a, b, noise, num_steps=num_steps),
        num_steps=num_steps,
        spread=spread,
        needed_runs=None if spread is None else runs_for(spread.fraction, wanted=wanted),
    )


def _outcome(change: Estimate | None, noise: _Noise | _Pairs) -> tuple[CompareOutcome, str | None]:
    if change is None or change.low is None or change.high is None:
        return CompareOutcome.TOO_NOISY, noise.missing
    if change.low > 0:
        return CompareOutcome.SLOWER, None
    return (CompareOutcome.FASTER if change.high < 0 else CompareOutcome.NO_DIFFERENCE), None


# -- the noise


def wants_stored(a: Runs, b: Runs) -> bool:
    """Return whether runs of the store help to say how much equal runs differ.

    They do where the sets are small, or come from two machines.
    """
    return needs_stored(len(a), len(b)) or alike.have_other_hosts(a, b)


class _Noise:
    """The runs that show how much equal runs differ, for any number that a run has."""

    def __init__(self, a: Runs, b: Runs, stored: Runs) -> None:
        self.own = (a, b)
        own_places = {run.place for run in (*a, *b)}
        kin = [r for r in stored if r.place not in own_places and alike.is_kin(r, a[0])]
        kin.sort(key=lambda run: run.started_unix_s)
        # Only groups that span machines say how much two machines differ.
        self.is_across = alike.have_other_hosts(a, b)
        self.groups = _grouped(kin, with_code=True, is_across=self.is_across)
        self.is_of_other_code = False
        if not wants_stored(a, b):
            self.groups = []
        elif sum(len(group) - 1 for group in self.groups) < MIN_DEGREES_SINGLE:
            coarse = _grouped(kin, with_code=False, is_across=self.is_across)
            if sum(map(len, coarse)) > sum(map(len, self.groups)):
                self.groups, self.is_of_other_code = coarse, True

    def difference(
        self, a: Values, b: Values, measure: Measure, *, least: float, is_scaled: bool = False
    ) -> Estimate:
        """Return how the values of a number differ, each of them one run's."""
        return difference(a, b, noise=self.pool(measure, is_scaled=is_scaled), least=least)

    def pool(self, measure: Measure, *, is_scaled: bool = False) -> Pool:
        """Return the noise of one number.

        `is_scaled`: the number is a time, and steps of stored runs may be longer than these.
        """
        own = pool([] if self._tells_nothing else [_values(runs, measure) for runs in self.own])
        values = [_values(group, measure) for group in self.groups]
        if is_scaled:
            step_s = fmean(_values(self.own[0], _step_s))
            scales = [step_s / fmean(_values(group, _step_s)) for group in self.groups]
            values = [[v * s for v in vs] for vs, s in zip(values, scales, strict=True)]
        return combine(own, self._stored([known for known in values if known]))

    def _stored(self, values: list[list[float]]) -> Pool:
        if not self.is_of_other_code:
            return pool(values)
        found = Pool()
        for group in values:
            found = found.add(pool_neighbors(group))
        return found

    @property
    def _tells_nothing(self) -> bool:
        """Return whether each set is from one machine, and the two machines differ."""
        return self.is_across and any(len({r.host for r in runs}) == 1 for runs in self.own)

    @property
    def spread(self) -> Spread | None:
        """Return the spread of the logarithm of the step time."""
        found = self.pool(_log_of(_step_s))
        variance = found.variance
        if variance is None:
            return None
        return Spread(
            fraction=max(MIN_SPREAD, math.sqrt(variance)),
            degrees=found.degrees,
            num_stored=sum(map(len, self.groups)),
            is_of_other_code=self.is_of_other_code,
        )

    @property
    def missing(self) -> str:
        """Return why there is no interval."""
        if self._tells_nothing:
            return "hosts_differ"
        if min(map(len, self.own)) > 1:
            return "two_runs"
        return "few_stored" if self.groups else "single_runs"


class _Pairs:
    """Runs that were made side by side: the differences within pairs show how much equal runs do.

    It has the methods of `_Noise`.
    """

    missing = "few_pairs"

    def __init__(self, a: Runs, b: Runs) -> None:
        self.own = (a, b)

    def difference(
        self, a: Values, b: Values, measure: Measure, *, least: float, is_scaled: bool = False
    ) -> Estimate:
        """Return how the values of a number differ within pairs."""
        return paired_difference(a, b, least=least)

    @property
    def spread(self) -> Spread | None:
        """Return the spread of the logarithm of the step time, of one run of a pair."""
        a, b = (_values(runs, _log_of(_step_s)) for runs in self.own)
        if len(a) < MIN_PAIRS:
            return None
        fraction = stdev([y - x for x, y in zip(a, b, strict=True)]) / math.sqrt(2)
        return Spread(fraction=max(MIN_SPREAD, fraction), degrees=len(a) - 1, is_paired=True)


def _grouped(runs: Runs, *, with_code: bool, is_across: bool) -> list[list[ComparedRun]]:
    """Return the runs that are repeats of each other, in groups of two or more."""
    groups: dict[tuple[object, ...], list[ComparedRun]] = {}
    for run in runs:
        key = alike.kind_of(run, with_code=with_code, with_host=not is_across)
        groups.setdefault(key, []).append(run)
    return [
        group
        for group in groups.values()
        if len(group) > 1 and not (is_across and len({run.host for run in group}) == 1)
    ]


# -- what differs


def _values(runs: Runs, measure: Measure) -> list[float]:
    return [value for run in runs if (value := measure(run)) is not None]


def _step_s(run: ComparedRun) -> float | None:
    return run.step_s


def _log_of(measure: Measure) -> Measure:
    def log_of(run: ComparedRun) -> float | None:
        value = measure(run)
        return None if value is None or value <= 0 else math.log(value)

    return log_of


def _ratio(name: str, a: Runs, b: Runs, measure: Measure, noise: _Noise | _Pairs) -> Effect:
    """Return a time that is never zero, compared by its logarithm."""
    log_of = _log_of(measure)
    logs = [_values(runs, log_of) for runs in (a, b)]
    least = max(MIN_SPREAD, math.sqrt(fmean([run.error_fraction**2 for run in (*a, *b)])))
    found = noise.difference(logs[0], logs[1], log_of, least=least)
    middle_a, middle_b = (math.exp(fmean(values)) for values in logs)
    change = _map(found, math.expm1)
    return Effect(
        name=name,
        a_s=middle_a,
        b_s=middle_b,
        change=change,
        difference_s=_map(change, lambda value: value * middle_a),
    )


def _plain(name: str, a: Runs, b: Runs, measure: Measure, noise: _Noise | _Pairs) -> Effect:
    """Return a time that may be zero, compared in seconds."""
    values = [_values(runs, measure) for runs in (a, b)]
    least = MIN_SPREAD * max(map(fmean, values))
    return Effect(
        name=name,
        a_s=fmean(values[0]),
        b_s=fmean(values[1]),
        difference_s=noise.difference(values[0], values[1], measure, least=least, is_scaled=True),
    )


def _phase_s(name: str) -> Measure:
    return lambda run: run.phases_s.get(name, 0.0)


def _spans(a: Runs, b: Runs, noise: _Noise | _Pairs) -> tuple[Effect, ...]:
    seen = {name for run in (*a, *b) for name in run.spans_s}
    return tuple(_plain(n, a, b, _span_s(n), noise) for n in SPANS if n in seen)


def _span_s(name: str) -> Measure:
    return lambda run: run.spans_s.get(name, 0.0)


def _finish(a: Runs, b: Runs, noise: _Noise | _Pairs, *, num_steps: int) -> Effect | None:
    """Return the time of a whole run of `num_steps`; the time beside its steps stays as it was."""

    def whole_s(run: ComparedRun) -> float | None:
        if run.duration_s is None or run.step_s is None:
            return None
        found_s = run.duration_s + (num_steps - run.num_steps) * run.step_s
        return found_s if found_s > 0 else None

    if any(whole_s(run) is None for run in (*a, *b)):
        return None
    return _ratio("finish", a, b, whole_s, noise)


def _map(estimate: Estimate, function: Callable[[float], float]) -> Estimate:
    """Return the estimate with its value and its ends mapped by a rising function."""
    ends = (None if end is None else function(end) for end in (estimate.low, estimate.high))
    low, high = ends
    return Estimate(value=function(estimate.value), low=low, high=high)
