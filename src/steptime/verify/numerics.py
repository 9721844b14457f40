"""Compares one step (L1): whether a candidate's first update differs by its rounding alone.

In: recordings. Out: checks. Two rulers measure the candidate: the baseline's own error against
float64, and the baseline with the last bits of its weights changed at the precision of the levers.
The second one is drawn by chance: a limit has an interval, and an error within it says that more
draws are needed. docs/explanation/quality.md says how the factors were calibrated on right and
wrong levers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import mul
from statistics import fmean, stdev

from steptime.verify.recordings import Recording, Values
from steptime.verify.values import Outcome, QualityCheck

LARGEST_OF_THREE = 0.8463
"""The largest of three draws lies so many standard deviations above their mean; source: Teichroew,
Annals of Mathematical Statistics 27 (1956), normal order statistics. A limit by it does not grow
with the number of draws, as their largest would."""

MIN_DRAWS = 3
"""Of fewer the largest is taken: their spread is not known."""

TOLERANCE = {
    3: (-0.122, 4.442),
    4: (0.026, 3.038),
    5: (0.115, 2.493),
    6: (0.177, 2.199),
    7: (0.225, 2.013),
    8: (0.263, 1.883),
    9: (0.294, 1.786),
    10: (0.320, 1.710),
    11: (0.343, 1.649),
    12: (0.363, 1.599),
}
"""Standard deviations above the mean, by the number of draws: the largest of three is above the
first, and below the second, for 95 % each. These are tolerance limits of a normal distribution, by
the noncentral t; source: Owen, SIAM Review 6 (1964)."""

OWN_FACTOR = 2.0
"""A candidate's error may be twice the baseline's: pytorch/pytorch#100075."""

STEP_FACTOR = 3.0
"""Its error may be this many times the largest of three perturbed runs', in one tensor of the first
update."""

ROUNDINGS = 4.0
"""Its error may be so many roundings of its own values, which perturbed weights may not show."""

CLEAR = 4.0
"""An element's gradient is settled where it is so many times its possible error."""

SCALE_FACTOR = 4.0
SCALE_FLOOR = 0.01
"""The whole first gradient or change, along the true one, is as near to 1 as in perturbed runs."""

TWIN_RTOL = 1e-3
"""The first loss in float64 may differ by so much; beyond, float64 makes it another training."""

NOISE = 0.1
"""A gradient that float32 itself gets wrong by a tenth is rounding: its true value is zero."""

NIL = 2.0**-18
"""The same test without float64: a gradient this much smaller than the largest, in mean square."""

FLOAT32_ROUNDOFF = 2.0**-24

FINEST_ROUNDOFF = 2.0**-11
"""No gradient needs to be more exact than this (as TF32 or fp16): other float32 kernels sum in
another order, and an activation that rounds to the other side of zero changes it by as much."""

WORST_FACTOR = 2.0
WORST_CAP = 0.25
"""A tensor may be twice as far off as any other tensor in a perturbed run, up to a quarter: chance
decides which tensor changes when an activation rounds to the other side of zero."""

OPEN = "within the spread of its limit"
"""What is said of an error that is neither below nor above a limit for certain."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """A limit with the interval in which it lies."""

    low: float
    value: float
    high: float

    @classmethod
    def exactly(cls, value: float) -> Limit:
        """Return a limit that is known."""
        return cls(low=value, value=value, high=value)

    def times(self, factor: float) -> Limit:
        """Return so many times this limit."""
        return Limit(low=factor * self.low, value=factor * self.value, high=factor * self.high)

    def at_most(self, value: float) -> Limit:
        """Return this limit, or the value where that is smaller."""
        low, middle, high = (min(one, value) for one in (self.low, self.value, self.high))
        return Limit(low=low, value=middle, high=high)

    def judge(self, error: float) -> Outcome:
        """Return whether an error is below the limit for certain, above it, or neither."""
        if error <= self.low:
            return Outcome.PASS
        return Outcome.FAIL if not error <= self.high else Outcome.INCONCLUSIVE


def largest(*limits: Limit) -> Limit:
    """Return the largest of several limits."""
    return Limit(
        low=max(one.low for one in limits),
        value=max(one.value for one in limits),
        high=max(one.high for one in limits),
    )


def of_draws(errors: Sequence[float]) -> Limit:
    """Return the largest of three such draws, with the interval by these ones."""
    num = len(errors)
    if num < MIN_DRAWS or not all(map(math.isfinite, errors)):
        return Limit.exactly(max(errors, default=0.0))
    mean, sd = fmean(errors), stdev(errors)
    below, above = TOLERANCE[min(num, max(TOLERANCE))]
    low, value, high = (mean + z * sd for z in (below, LARGEST_OF_THREE, above))
    return Limit(low=max(0.0, low), value=value, high=high)


Key = tuple[int, str, str]
Tensors = Mapping[Key, Values]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rulers:
    """First updates: the truth (float64, or else the baseline), and runs that differ from it."""

    truth: Tensors
    baseline: Tensors
    perturbed: tuple[Tensors, ...]
    roundoff: float
    is_double: bool
    worst: Mapping[str, Limit] = field(default_factory=dict)
    """Relative error that any tensor may have, of gradients, changes and buffers."""


def first_tensors(recording: Recording) -> Tensors:
    """Return the first update of each optimizer on the first rank, by optimizer, kind and name."""
    ranks = recording.ranks[:1]
    return {(t.opt, t.what, t.name): t.values for rank in ranks for t in rank.first}


def has_twin(baseline: Recording, double: Recording) -> bool:
    """Return whether the run in float64 is the same training, by its first loss."""
    first = [_first_loss(one) for one in (baseline, double)]
    if first[0] is None or first[1] is None:
        return False
    return abs(first[0] - first[1]) <= TWIN_RTOL * max(abs(first[0]), 1e-6)


def _first_loss(recording: Recording) -> float | None:
    losses = [rank.updates[0].loss for rank in recording.ranks[:1] if rank.updates]
    return losses[0] if losses and losses[0] is not None else None


def make_rulers(
    baseline: Recording, double: Recording, perturbed: Sequence[Recording], *, roundoff: float
) -> Rulers:
    """Return the rulers of one step; without a twin in float64, the baseline is the truth."""
    is_double = has_twin(baseline, double)
    rulers = Rulers(
        truth=first_tensors(double if is_double else baseline),
        baseline=first_tensors(baseline),
        perturbed=tuple(first_tensors(one) for one in perturbed),
        roundoff=roundoff,
        is_double=is_double,
    )
    keys = [key for key in rulers.truth if key in rulers.baseline and not _is_rounding(rulers, key)]
    worst = {}
    for what in {key[1] for key in keys}:
        own = [key for key in keys if key[1] == what]
        errors = [
            max((_error_of(rulers, one, key) for key in own if key in one), default=0.0)
            for one in rulers.perturbed
        ]
        worst[what] = of_draws(errors).times(WORST_FACTOR).at_most(WORST_CAP)
    return replace(rulers, worst=worst)


def _error_of(rulers: Rulers, tensors: Tensors, key: Key) -> float:
    """Return a tensor's distance from the truth over the size of the truth."""
    return _distance(tensors[key], rulers.truth[key]) / (_norm(rulers.truth[key]) or math.inf)


# -- one step


def check_one_step(rulers: Rulers, candidate: Tensors) -> tuple[QualityCheck, ...]:
    """Check L1: each tensor's gradient and change, and the length of all of them together."""
    if missing := [key for key in rulers.baseline if key not in candidate]:
        found = f"{missing[0][2]} has no {missing[0][1]}"
        return (QualityCheck(name="one_step", outcome=Outcome.FAIL, detail=found),)
    keys = [key for key in rulers.truth if key in rulers.baseline]
    if not keys:
        found = "no gradient was seen in the first update"
        return (QualityCheck(name="one_step", outcome=Outcome.INCONCLUSIVE, detail=found),)
    checks = [_check_tensor(rulers, candidate, key) for key in keys]
    worst = max(checks, key=lambda check: (_GRAVITY.index(check.outcome), excess(check)))
    return (worst, *(_check_scale(rulers, candidate, what) for what in ("gradient", "change")))


_GRAVITY = (Outcome.PASS, Outcome.INCONCLUSIVE, Outcome.FAIL)


def excess(check: QualityCheck) -> float:
    """Return a check's estimate over its limit."""
    estimate, limit = check.estimate or 0.0, check.limit or 0.0
    if not math.isfinite(estimate):
        return math.inf
    return estimate / limit if limit else math.inf * (estimate > 0)


def _check_tensor(rulers: Rulers, candidate: Tensors, key: Key) -> QualityCheck:
    """Check the relative error of one tensor against its limit."""
    opt, what, name = key
    check = _check_values(rulers, candidate[key], key)
    if what != "change" or check.outcome is Outcome.PASS:
        return check
    places = _settled(rulers, (opt, "gradient", name))
    if places is None or len(candidate[key]) != len(rulers.truth[key]):
        return check
    ours = [candidate[key][i] for i in places]
    return _check_values(_only(rulers, key, places), ours, key)


def _check_values(rulers: Rulers, ours: Values, key: Key) -> QualityCheck:
    _, what, name = key
    truth, limit = rulers.truth[key], _limit(rulers, key)
    size, error = _norm(truth), _distance(ours, truth)
    is_lost = what == "gradient" and limit.value < size and not any(ours)
    outcome = Outcome.FAIL if is_lost else limit.judge(error)
    told = " is zero" if is_lost else f": {OPEN}" if outcome is Outcome.INCONCLUSIVE else ""
    return QualityCheck(
        name="one_step",
        outcome=outcome,
        estimate=error / (size or 1.0),
        limit=limit.value / (size or 1.0),
        n=len(truth),
        detail=f"{what} of {name}{told}",
    )


def _limit(rulers: Rulers, key: Key) -> Limit:
    """Return the limit of a tensor's distance from the truth."""
    truth = rulers.truth[key]
    size, roundoff = _norm(truth), max(rulers.roundoff, FINEST_ROUNDOFF)
    own = _distance(rulers.baseline[key], truth)
    others = [_distance(one[key], truth) for one in rulers.perturbed if key in one]
    least = max(ROUNDINGS * roundoff * size, OWN_FACTOR * own)
    if key[1] == "change":  # as if some elements stepped the other way
        least = max(least, 2 * math.sqrt(rulers.roundoff) * size)
    if _is_rounding(rulers, key):
        if not rulers.is_double or key[1] == "change":
            return Limit.exactly(math.inf)  # Adam makes full steps of rounding, by chance
        least = max(least, STEP_FACTOR * own * roundoff / FLOAT32_ROUNDOFF)
    limits = [Limit.exactly(least), of_draws(others).times(STEP_FACTOR)]
    if key[1] in rulers.worst:
        limits.append(rulers.worst[key[1]].times(size))
    return largest(*limits)


def _settled(rulers: Rulers, key: Key) -> list[int] | None:
    """Return the elements of a weight whose gradient is well above its possible error.

    For the others, an optimizer like Adam makes a full step forward or back, by chance.
    """
    truth = rulers.truth.get(key)
    if truth is None or key not in rulers.baseline:
        return None
    clear = CLEAR * _limit(rulers, key).value / math.sqrt(max(1, len(truth)))
    return [i for i, value in enumerate(truth) if abs(value) > clear]


def _only(rulers: Rulers, key: Key, places: list[int]) -> Rulers:
    """Return the rulers of one tensor with these elements alone."""

    def cut(tensors: Tensors) -> Tensors:
        values = tensors.get(key, ())
        return {key: [values[i] for i in places]} if len(values) > max(places, default=-1) else {}

    return replace(
        rulers,
        truth=cut(rulers.truth),
        baseline=cut(rulers.baseline),
        perturbed=tuple(map(cut, rulers.perturbed)),
    )


def _is_rounding(rulers: Rulers, key: Key) -> bool:
    """Return whether all of a tensor is rounding: its own value, or what its gradient makes of it.

    A norm layer's mean is truly zero where a product of another's outputs feeds it, as in the
    blocks of a MobileNet. Only float64 shows it.
    """
    if key[1] == "buffer":
        return rulers.is_double and _is_nil(rulers, key)
    return _is_nil(rulers, (key[0], "gradient", key[2]))


def _is_nil(rulers: Rulers, key: Key) -> bool:
    """Return whether a gradient is truly zero, as a bias' before a norm layer: all is rounding."""
    truth, baseline = rulers.truth.get(key), rulers.baseline.get(key)
    if truth is None or baseline is None:
        return False
    if rulers.is_double:
        return _distance(baseline, truth) > NOISE * _norm(truth)
    largest = max(_mean_square(v) for k, v in rulers.truth.items() if k[1] == "gradient")
    return _mean_square(truth) < NIL**2 * largest


def _check_scale(rulers: Rulers, candidate: Tensors, what: str) -> QualityCheck:
    """Check the projection of all gradients, or changes, on the true ones, minus 1."""
    keys = [key for key in rulers.truth if key[1] == what and key in candidate]
    keys = [key for key in keys if not _is_nil(rulers, (key[0], "gradient", key[2]))]
    square = sum(_norm(rulers.truth[key]) ** 2 for key in keys)
    name = f"one_step_{what}"
    if not square:
        return QualityCheck(name=name, outcome=Outcome.PASS, n=0)

    def lengthening(tensors: Tensors) -> float:
        products = (_product(tensors[key], rulers.truth[key]) for key in keys if key in tensors)
        return sum(products) / square - 1

    others = of_draws([abs(lengthening(one)) for one in rulers.perturbed])
    limit = largest(Limit.exactly(abs(lengthening(rulers.baseline))), others).times(SCALE_FACTOR)
    estimate = abs(lengthening(candidate))
    outcome = limit.judge(estimate - SCALE_FLOOR)
    return QualityCheck(
        name=name,
        outcome=outcome,
        estimate=estimate,
        limit=limit.value + SCALE_FLOOR,
        n=len(keys),
        detail=OPEN if outcome is Outcome.INCONCLUSIVE else None,
    )


def _norm(values: Values) -> float:
    return math.sqrt(_product(values, values))


def _mean_square(values: Values) -> float:
    return _product(values, values) / max(1, len(values))


def _product(a: Values, b: Values) -> float:
    return float(sum(map(mul, a, b)))


def _distance(a: Values, b: Values) -> float:
    """Return the Euclidean distance; infinite if one is not finite, or the sizes differ."""
    if len(a) != len(b):
        return math.inf
    found = math.dist(a, b)
    return found if math.isfinite(found) else math.inf
