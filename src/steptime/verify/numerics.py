"""Compares one step (L1): whether a candidate's first update differs by its rounding alone.

In: recordings. Out: checks. Two rulers measure the candidate: the baseline's own error against
float64, and the baseline with the last bits of its weights changed at the precision of the levers.
docs/explanation/quality.md says how the factors were calibrated on right and wrong levers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import mul

from steptime.verify.recordings import Recording, Values
from steptime.verify.values import Outcome, QualityCheck

OWN_FACTOR = 2.0
"""A candidate's error may be twice the baseline's: pytorch/pytorch#100075."""

STEP_FACTOR = 3.0
"""Its error may be this many times the worst perturbed run's, in one tensor of the first update."""

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
    worst: Mapping[str, float] = field(default_factory=dict)
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
    worst: dict[str, float] = {}
    for key, truth in rulers.truth.items():
        if key in rulers.baseline and not _is_nil(rulers, (key[0], "gradient", key[2])):
            errors = [_distance(one[key], truth) for one in rulers.perturbed if key in one]
            found = WORST_FACTOR * max(errors, default=0.0) / (_norm(truth) or math.inf)
            worst[key[1]] = min(WORST_CAP, max(found, worst.get(key[1], 0.0)))
    return replace(rulers, worst=worst)


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
    worst = max((_check_tensor(rulers, candidate, key) for key in keys), key=excess)
    return (worst, *(_check_scale(rulers, candidate, what) for what in ("gradient", "change")))


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
    is_lost = what == "gradient" and limit < size and not any(ours)
    return QualityCheck(
        name="one_step",
        outcome=Outcome.PASS if error <= limit and not is_lost else Outcome.FAIL,
        estimate=error / (size or 1.0),
        limit=limit / (size or 1.0),
        n=len(truth),
        detail=f"{what} of {name}" + (" is zero" if is_lost else ""),
    )


def _limit(rulers: Rulers, key: Key) -> float:
    """Return the limit of a tensor's distance from the truth."""
    truth = rulers.truth[key]
    size, roundoff = _norm(truth), max(rulers.roundoff, FINEST_ROUNDOFF)
    own = _distance(rulers.baseline[key], truth)
    others = [_distance(one[key], truth) for one in rulers.perturbed if key in one]
    least = max(ROUNDINGS * roundoff, rulers.worst.get(key[1], 0.0)) * size
    if key[1] == "change":  # as if some elements stepped the other way
        least = max(least, 2 * math.sqrt(rulers.roundoff) * size)
    limit = max(OWN_FACTOR * own, STEP_FACTOR * max(others, default=0.0), least)
    if _is_nil(rulers, (key[0], "gradient", key[2])):
        if not rulers.is_double or key[1] == "change":
            return math.inf  # Adam makes full steps of rounding, by chance
        return max(limit, STEP_FACTOR * own * roundoff / FLOAT32_ROUNDOFF)
    return limit


def _settled(rulers: Rulers, key: Key) -> list[int] | None:
    """Return the elements of a weight whose gradient is well above its possible error.

    For the others, an optimizer like Adam makes a full step forward or back, by chance.
    """
    truth = rulers.truth.get(key)
    if truth is None or key not in rulers.baseline:
        return None
    clear = CLEAR * _limit(rulers, key) / math.sqrt(max(1, len(truth)))
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

    others = [abs(lengthening(one)) for one in (rulers.baseline, *rulers.perturbed)]
    limit = SCALE_FACTOR * max(others) + SCALE_FLOOR
    estimate = abs(lengthening(candidate))
    outcome = Outcome.PASS if estimate <= limit else Outcome.FAIL
    return QualityCheck(name=name, outcome=outcome, estimate=estimate, limit=limit, n=len(keys))


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
