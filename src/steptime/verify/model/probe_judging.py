"""Judges how predictions react to a change: the rate of rows that violate, or a curve over doses.

In: predictions before and after. Out: a `ProbeResult`. A mean over rows would hide moves up and
down that cancel, so each row is judged.

Sources: C. J. Clopper, E. S. Pearson, Biometrika 26, 1934, for the bounds of a rate; the delta
method for a ratio of means, its terms paired by row.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from steptime.core.interval import Interval
from steptime.errors import DataError, UsageError
from steptime.verify.model.signed_gains import LEVEL, SignedGain, judge
from steptime.verify.values import Outcome
from steptime.verify.values.probe_asked import COMPLIANCE, DIRECTION, ProbeAsked
from steptime.verify.values.probe_results import ProbeDose, ProbeResult, ViolatingRow

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

_WORST = 10
_PROBABILITY_MOVE = 0.1
"""CheckList's default: how far a probability may move that must stay the same."""

_MOST_ROWS = 10**9


@dataclass(frozen=True, slots=True)
class Reaction:
    """Predictions (num_rows,) or (num_rows, num_scores): labels, or numbers."""

    values: Array

    @property
    def is_label(self) -> bool:
        """Whether they are labels, which stay or change, and do not move a little."""
        return self.values.dtype.kind in "USbiu"

    def equals(self, other: Reaction) -> bool:
        """Return whether all predictions are the same, bit for bit."""
        return bool(np.array_equal(self.values, other.values))

    def one_number(self, name: str) -> Array:
        """Return a number for each row (num_rows,): of two scores, the second."""
        values = self.values
        if values.ndim == 2 and values.shape[1] == 2:
            values = values[:, 1]
        if values.ndim != 1 or values.dtype.kind not in "fiub":
            raise UsageError(
                f"the probe `{name}` needs one number for each row, and the predictor returned "
                f"{values.dtype} of shape {values.shape}.",
                hint="Return a score: (rows,), or (rows, 2) whose second is the positive class.",
            )
        return values.astype(float)


@dataclass(frozen=True, slots=True)
class Reactions:
    """Predictions of the same rows: without a change, once more without, and after each dose."""

    base: Reaction
    again: Reaction
    after: Sequence[Reaction]


def reaction_of(predictions: Any, num_rows: int) -> Reaction:
    """Return predictions in one form.

    Raises:
        DataError: there is not one for each row, or one is no finite number.
    """
    values = np.asarray(predictions)
    if values.dtype.kind == "O":
        values = values.astype(str)
    if values.ndim == 0 or len(values) != num_rows:
        shape = "one value" if values.ndim == 0 else f"the shape {values.shape}"
        raise DataError(f"the predictor returned {shape} for {num_rows:,} rows.")
    values = values.reshape(num_rows, -1)
    if values.shape[1] == 1:
        values = values[:, 0]
    if values.dtype.kind == "f":
        num_bad = int((~np.isfinite(values)).reshape(num_rows, -1).any(axis=1).sum())
        if num_bad:
            raise DataError(
                f"NonFiniteMetric: the prediction is no finite number in {num_bad:,} of "
                f"{num_rows:,} rows."
            )
    return Reaction(values)


def judge_rows(
    asked: ProbeAsked,
    change: str | None,
    seen: Reactions,
    judged: Array,
    rows: Sequence[str],
    *,
    complies: Array | None = None,
) -> ProbeResult:
    """Return the rate of violations, and whether it is below what is allowed.

    Args:
        asked: the probe.
        change: what was done.
        seen: the predictions.
        judged: the rows (num_rows,) that were changed.
        rows: the id of each row.
        complies: of a probe of compliance: the rows (num_rows,) that do.
    """
    own = 0.0
    if complies is not None:
        harm, hit = np.ones(len(complies)), ~complies
        noise = np.zeros(len(complies), dtype=bool)
    else:
        harm, hit = _violations(asked, seen.base, seen.after[0], by=asked.by)
        noise = _violations(asked, seen.base, seen.again, by=0.0)[1]
    num, num_hit = int(judged.sum()), int((hit & judged).sum())
    rate = rate_of(num_hit, num)
    floor = Interval(estimate=0.0, low=0.0, high=0.0, n=num)
    if not seen.base.equals(seen.again) and asked.kind != COMPLIANCE:
        floor = rate_of(int((noise & judged).sum()), num)
        own = floor.estimate
    outcome, needed = _decide(rate, floor, asked.allowed)
    reason = "too_few_rows" if outcome is Outcome.INCONCLUSIVE else None
    if outcome is Outcome.PASS and asked.kind == DIRECTION and not _moved(seen, judged):
        outcome, reason = Outcome.INCONCLUSIVE, "nothing_moved"
    places = np.flatnonzero(hit & judged)
    worst = places[np.argsort(-harm[places], kind="stable")][:_WORST]
    last = seen.after[0]
    return ProbeResult(
        name=asked.name,
        kind=asked.kind,
        change=change,
        num_rows=num,
        num_violations=num_hit,
        rate=rate,
        allowed=asked.allowed,
        own_rate=own,
        outcome=outcome,
        reason=reason,
        num_needed=needed,
        worst=tuple(
            ViolatingRow(
                row=rows[i] if rows else str(i),
                before=_told(seen.base.values[i]),
                after=_told(last.values[i]),
            )
            for i in worst.tolist()
        ),
    )


def rate_of(num_hit: int, num: int) -> Interval:
    """Return a rate with its bounds, each of them one-sided at 5 %."""
    from scipy.stats import beta

    low = float(beta.ppf(LEVEL, num_hit, num - num_hit + 1)) if num_hit else 0.0
    high = float(beta.isf(LEVEL, num_hit + 1, num - num_hit)) if num_hit < num else 1.0
    return Interval(estimate=num_hit / num, low=low, high=high, n=num)


def _decide(rate: Interval, floor: Interval, allowed: float) -> tuple[Outcome, int | None]:
    """Judge a rate less the predictor's own, each at the bound that is least in its favor."""
    if rate.high - floor.low <= allowed:
        return Outcome.PASS, None
    if rate.low - floor.high > allowed:
        return Outcome.FAIL, None
    return Outcome.INCONCLUSIVE, rows_to_decide(rate.estimate, allowed + floor.estimate, rate.n)


def rows_to_decide(rate: float, allowed: float, num: int) -> int | None:
    """Return how many rows decide at this rate; None where none would."""
    from scipy.stats import beta

    def is_decided(n: float) -> bool:
        if rate <= allowed:
            return float(beta.isf(LEVEL, rate * n + 1, (1 - rate) * n)) <= allowed
        return float(beta.ppf(LEVEL, rate * n, (1 - rate) * n + 1)) > allowed

    if not 0 < allowed < 1 or rate == allowed or not is_decided(_MOST_ROWS):
        return None
    low, high = 1, _MOST_ROWS
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if is_decided(middle) else (middle + 1, high)
    return max(low, num + 1)


def _violations(
    asked: ProbeAsked, base: Reaction, after: Reaction, *, by: float
) -> tuple[Array, Array]:
    """Return how far each row (num_rows,) violates, and whether it does."""
    if asked.kind == DIRECTION:
        sign = 1.0 if asked.expect == "up" else -1.0
        move = sign * (after.one_number(asked.name) - base.one_number(asked.name))
        return by - move, move < by
    if base.values.shape != after.values.shape:
        raise DataError(f"the predictor returned another shape after `{asked.name}`.")
    if base.is_label or after.is_label:
        changed = (base.values != after.values).reshape(len(base.values), -1).any(axis=1)
        return changed.astype(float), changed
    moved = np.abs(after.values - base.values).reshape(len(base.values), -1).max(axis=1)
    return moved, moved > _tolerance(asked, base)


def _tolerance(asked: ProbeAsked, base: Reaction) -> float:
    if asked.tolerance is not None:
        return asked.tolerance
    if bool(((base.values >= 0) & (base.values <= 1)).all()):
        return _PROBABILITY_MOVE
    raise UsageError(
        f"the probe `{asked.name}` needs the key `tolerance`: the predictions are no "
        "probabilities, so how far may they move and count as the same?"
    )


def _moved(seen: Reactions, judged: Array) -> bool:
    is_other = seen.base.values != seen.after[0].values
    return bool(is_other[judged].any())


def _told(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return " ".join(_told(one) for one in value[:4])
    return f"{value:.4g}" if isinstance(value, np.floating) else str(value)


def judge_doses(
    asked: ProbeAsked,
    change: str | None,
    mine: Reactions,
    theirs: Reactions | None,
    doses: Sequence[float],
    *,
    changed: Sequence[Array],
    labels: Array | None,
) -> ProbeResult:
    """Return the retained metric at each dose, beside the reference's where there is one."""
    found = list[ProbeDose]()
    metric = "same"
    for i, dose in enumerate(doses):
        metric, ratio, terms = _retained(mine, i, labels)
        if theirs is None:
            found.append(ProbeDose(dose=dose, num_changed=int(changed[i].sum()), retained=ratio))
            continue
        _, other, other_terms = _retained(theirs, i, labels)
        error = float((terms - other_terms).std()) / math.sqrt(len(terms))
        gain = SignedGain(ratio - other, error, len(terms))
        found.append(
            ProbeDose(
                dose=dose,
                num_changed=int(changed[i].sum()),
                retained=ratio,
                reference=other,
                gain=gain.interval(),
                outcome=None if asked.margin is None else judge(gain, asked.margin),
            )
        )
    outcome, reason = _of_doses(found, asked)
    return ProbeResult(
        name=asked.name,
        kind=asked.kind,
        change=change,
        num_rows=len(mine.base.values),
        outcome=outcome,
        reason=reason,
        metric=metric,
        doses=tuple(found),
    )


def _of_doses(found: Sequence[ProbeDose], asked: ProbeAsked) -> tuple[Outcome | None, str | None]:
    """Judge all doses together: each of them must not be worse."""
    if found[0].gain is None:
        return None, None
    if asked.margin is None:
        return Outcome.INCONCLUSIVE, "no_margin"
    outcomes = {one.outcome for one in found}
    if Outcome.FAIL in outcomes:
        return Outcome.FAIL, None
    if Outcome.INCONCLUSIVE in outcomes:
        return Outcome.INCONCLUSIVE, "too_few_rows"
    return Outcome.PASS, None


def _retained(seen: Reactions, i: int, labels: Array | None) -> tuple[str, float, Array]:
    """Return the metric's name, its ratio, and the terms (num_rows,) of the ratio's error."""
    if labels is None:
        metric, before, after = (
            "same",
            _same(seen.base, seen.again),
            _same(seen.base, seen.after[i]),
        )
    else:
        metric, before = _right(seen.base, labels)
        after = _right(seen.after[i], labels)[1]
    # Of an error, less is better: the ratio is turned round, so that 1 is all and 0 is nothing.
    top, bottom = (before, after) if metric == "error" else (after, before)
    if not bottom.mean():
        raise DataError("the metric is 0 without a change in every row: nothing can be retained.")
    ratio = float(top.mean() / bottom.mean())
    return metric, ratio, (top - ratio * bottom) / bottom.mean()


def _same(a: Reaction, b: Reaction) -> Array:
    if a.is_label or a.values.ndim == 2:
        pair = [r.values if r.is_label else r.values.argmax(axis=1) for r in (a, b)]
        same = (pair[0] == pair[1]).reshape(len(pair[0]), -1).all(axis=1)
        return cast("Array", same.astype(float))
    near = np.abs(a.values - b.values) <= _PROBABILITY_MOVE * (a.values.std() or 1.0)
    return cast("Array", near.astype(float))


def _right(seen: Reaction, labels: Array) -> tuple[str, Array]:
    """Return whether each row (num_rows,) is right, or how far it is off."""
    values = seen.values
    if values.ndim == 2 and not seen.is_label:
        values = values.argmax(axis=1)
    if values.dtype.kind in "USbiu" or labels.dtype.kind in "US":
        if {values.dtype.kind, labels.dtype.kind} & {"U", "S"}:
            values, labels = values.astype(str), labels.astype(str)
        return "right", (values == labels).astype(float)
    is_binary = bool(np.isin(labels, (0, 1)).all() and ((values >= 0) & (values <= 1)).all())
    if is_binary:
        return "right", ((values >= 0.5) == (labels == 1)).astype(float)
    return "error", np.abs(values - labels)
