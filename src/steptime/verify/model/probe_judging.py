"""Judges how predictions react to a change: the rate of rows that violate, or a curve over doses.

In: predictions before and after. Out: a `ProbeResult`. A mean over rows would hide moves up and
down that cancel, so each row is judged.

Source: the delta method for a ratio of means, its terms paired by row.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from steptime.core.interval import Interval
from steptime.errors import DataError, UsageError
from steptime.verify.model.signed_gains import LEVEL, judge, paired_gain, rate_of
from steptime.verify.values import Outcome
from steptime.verify.values.check_results import ProbeDose, ProbeResult, ViolatingRow
from steptime.verify.values.probe_asked import DIRECTION, ProbeAsked

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

_WORST = 10
_MOVE = 0.1
"""How far a probability may move that must stay the same (CheckList's default)."""

_MOST_ROWS = 10**9
_HUGE = 1e300
"""From here on, a difference of two numbers may be none."""


@dataclass(frozen=True, slots=True)
class Reactions:
    """Predictions without a change, once more without, and after each change.

    Each is (num_rows,) or (num_rows, num_scores): labels, or numbers.
    """

    base: Array
    again: Array
    after: Sequence[Array]


def predictions_of(predictions: Any, num_rows: int) -> Array:
    """Return predictions with one row for each row.

    Raises:
        DataError: there is not one for each row, or one is no finite number.
    """
    values = np.asarray(predictions)
    if values.shape[:1] != (num_rows,) or values.dtype.kind not in "biufUSO":
        raise DataError(
            f"the predictor returned {values.dtype} of shape {values.shape}; expected a number or "
            f"label for each of {num_rows:,} rows."
        )
    values = values.reshape(num_rows, -1)
    if values.dtype.kind in "OS":
        values = values.astype(str)
    if values.dtype.kind == "f":
        num_bad = int((~(np.abs(values) < _HUGE)).any(axis=1).sum())
        if num_bad:
            raise DataError(
                f"NonFiniteMetric: the prediction is no finite number in {num_bad:,} of "
                f"{num_rows:,} rows."
            )
    return values[:, 0] if values.shape[1] == 1 else values


def judge_rows(
    asked: ProbeAsked,
    seen: Reactions,
    judged: Array,
    rows: Sequence[str],
    breaks: Array | None = None,
) -> ProbeResult:
    """Return the rate of violations, and whether it is below what is allowed.

    Args:
        asked: the probe.
        seen: the predictions.
        judged: the rows (num_rows,) that were changed.
        rows: the id of each row.
        breaks: of a probe of compliance: the rows (num_rows,) that do not comply.
    """
    after, num = seen.after[0], int(judged.sum())
    own = Interval(estimate=0.0, low=0.0, high=0.0, n=num)
    harm = _harm(asked, seen.base, after, asked.by) if breaks is None else breaks.astype(float)
    hit = judged & (harm > 0)
    if breaks is None and not np.array_equal(seen.base, seen.again):
        own = rate_of(int((judged & (_harm(asked, seen.base, seen.again) > 0)).sum()), num)
    rate = rate_of(int(hit.sum()), num)
    outcome, reason, needed = Outcome.PASS, None, None
    if rate.low - own.high > asked.allowed:
        outcome = Outcome.FAIL
    elif rate.high - own.low > asked.allowed:  # each at the bound that is least in its favor
        outcome, reason = Outcome.INCONCLUSIVE, "too_few_rows"
        needed = rows_to_decide(rate.estimate, asked.allowed + own.estimate, num)
    elif asked.kind == DIRECTION and not (seen.base != after)[judged].any():
        outcome, reason = Outcome.INCONCLUSIVE, "nothing_moved"
    places = np.flatnonzero(hit)
    worst = places[np.argsort(-harm[places], kind="stable")][:_WORST].tolist()
    ids = rows or range(len(hit))
    return ProbeResult(
        name=asked.name,
        kind=asked.kind,
        num_rows=num,
        num_violations=int(hit.sum()),
        rate=rate,
        allowed=asked.allowed,
        own_rate=own.estimate,
        outcome=outcome,
        reason=reason,
        num_needed=needed,
        worst=tuple(
            ViolatingRow(row=str(ids[i]), before=_told(seen.base[i]), after=_told(after[i]))
            for i in worst
        ),
    )


def rows_to_decide(rate: float, allowed: float, num: int) -> int | None:
    """Return how many rows decide at this rate; None where none would."""
    from scipy.stats import beta

    def is_decided(n: float) -> bool:
        if rate <= allowed:
            return float(beta.isf(LEVEL, rate * n + 1, (1 - rate) * n)) <= allowed
        return float(beta.ppf(LEVEL, rate * n, (1 - rate) * n + 1)) > allowed

    if not 0 < allowed < 1 or rate == allowed or not is_decided(_MOST_ROWS):
        return None
    return num + 1 + bisect_left(range(num + 1, _MOST_ROWS), 1, key=is_decided)


def _harm(asked: ProbeAsked, base: Array, after: Array, by: float = 0.0) -> Array:
    """Return how far each row (num_rows,) violates; it does where that is above 0."""
    if asked.kind == DIRECTION:
        sign = 1.0 if asked.expect == "down" else -1.0
        return by + sign * (_one_number(after, asked.name) - _one_number(base, asked.name))
    if base.shape != after.shape:
        raise DataError(f"the predictor returned another shape after `{asked.name}`.")
    if _is_label(base):
        moved, tolerance = (base != after).astype(float), 0.0
    elif asked.tolerance is None and not _are_probabilities(base):
        raise UsageError(
            f"the probe `{asked.name}` needs the key `tolerance`: the predictions are no "
            "probabilities, so how far may they move and count as the same?"
        )
    else:
        moved = np.abs(after - base)
        tolerance = _MOVE if asked.tolerance is None else asked.tolerance
    return np.asarray(moved.reshape(len(base), -1).max(axis=1) - tolerance)


def _is_label(values: Array) -> bool:
    """Return whether they are labels, which stay or change, and do not move a little."""
    return values.dtype.kind in "Ubiu"


def _are_probabilities(values: Array) -> bool:
    return values.dtype.kind != "U" and bool(((values >= 0) & (values <= 1)).all())


def _one_number(values: Array, name: str) -> Array:
    """Return a number for each row (num_rows,): of two scores, the second."""
    if values.ndim == 2 and values.shape[1] == 2:
        values = values[:, 1]
    if values.ndim != 1 or values.dtype.kind not in "fiub":
        raise UsageError(
            f"the probe `{name}` needs one number for each row, and the predictor returned "
            f"{values.dtype} of shape {values.shape}.",
            hint="Return a score: (rows,), or (rows, 2) whose second is the positive class.",
        )
    return values.astype(float)


def _told(value: Any) -> str:
    some = np.atleast_1d(value)[:4]
    return " ".join(f"{one:.4g}" if some.dtype.kind == "f" else str(one) for one in some)


def judge_doses(
    asked: ProbeAsked, seen: Sequence[Reactions], doses: Sequence[float], labels: Array | None
) -> ProbeResult:
    """Return the retained metric at each dose, of `seen` first the candidate's.

    The second, where there is one, is the reference's, beside which it is judged.
    """
    found, metric = list[ProbeDose](), ""
    for i, dose in enumerate(doses):
        metric, ratio, terms = _retained(seen[0], i, labels)
        one = ProbeDose(dose=dose, retained=ratio)
        for reference in seen[1:]:
            _, other, other_terms = _retained(reference, i, labels)
            gain = paired_gain(terms - other_terms + ratio - other)  # the terms' mean is 0
            outcome = Outcome.INCONCLUSIVE if asked.margin is None else judge(gain, asked.margin)
            one = replace(one, reference=other, gain=gain.interval(), outcome=outcome)
        found.append(one)
    grave = (Outcome.FAIL, Outcome.INCONCLUSIVE, Outcome.PASS)
    outcomes = {one.outcome for one in found}
    worst = next((one for one in grave if one in outcomes), None)
    reason = "no_margin" if asked.margin is None else "too_few_rows"
    return ProbeResult(
        name=asked.name,
        kind=asked.kind,
        num_rows=len(seen[0].base),
        outcome=worst,
        reason=reason if worst is Outcome.INCONCLUSIVE else None,
        metric=metric,
        doses=tuple(found),
    )


def _retained(seen: Reactions, i: int, labels: Array | None) -> tuple[str, float, Array]:
    """Return the metric's name, its ratio, and the terms (num_rows,) of the ratio's error.

    Without labels, the predictor's own decisions without a change are the truth.
    """
    base, first = seen.base, seen.base if labels is not None else seen.again
    is_binary = labels is None or bool(np.isin(labels, (0, 1)).all())
    is_decided = base.ndim == 2 or _is_label(base) or (is_binary and _are_probabilities(base))
    if labels is None and not is_decided:
        raise UsageError("a perturbation of numbers needs the column `label` in --inputs.")
    truth = _decided(base) if labels is None else labels
    if is_decided:
        before, after = (_right(values, truth) for values in (first, seen.after[i]))
        top, bottom, metric = after, before, "same" if labels is None else "right"
    else:
        if truth.dtype.kind not in "iuf" or not np.isfinite(truth).all():
            raise DataError("NonFiniteMetric: predictions are numbers, and not every `label` is.")
        # Less is better: the ratio is turned round, so that 1 is all and 0 is nothing.
        top, bottom = np.abs(first - truth), np.abs(seen.after[i] - truth)
        metric = "error"
    if not bottom.mean():
        raise DataError("the metric is 0 in every row: nothing can be retained.")
    ratio = float(top.mean() / bottom.mean())
    return metric, ratio, (top - ratio * bottom) / bottom.mean()


def _decided(values: Array) -> Array:
    """Return the label (num_rows,) that each prediction stands for."""
    if values.ndim == 2:
        return np.asarray(values.argmax(axis=1))
    return values if _is_label(values) else np.asarray(values >= 0.5, dtype=int)


def _right(values: Array, labels: Array) -> Array:
    """Return whether each row (num_rows,) is right."""
    found = _decided(values)
    if "U" in (found.dtype.kind, labels.dtype.kind):
        found, labels = found.astype(str), labels.astype(str)
    return np.asarray(found == labels, dtype=float)
