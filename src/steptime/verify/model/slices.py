"""Splits a difference between two arms by a column: within slices, and by other shares of them.

Sources: E. M. Kitagawa, JASA 50, 1955, for the two parts; N. Mantel, W. Haenszel, JNCI 22, 1959,
and N. E. Breslow, N. E. Day, 1980, by statsmodels, for odds within slices.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from steptime.core.interval import Interval
from steptime.errors import DataError
from steptime.verify.model.hunt import adjust
from steptime.verify.model.metrics import is_binary
from steptime.verify.model.signed_gains import SignedGain, freedom_of, gain_of, judge
from steptime.verify.model.two_arms import ArmRows, Arms
from steptime.verify.values import Outcome
from steptime.verify.values.model_verdict import SliceColumn, SliceResult

if TYPE_CHECKING:
    from steptime.verify.model.two_arms import Codes, Floats

_LEVEL = 0.05


@dataclass(frozen=True, slots=True)
class _Cell:
    """One slice in both arms: its name, its rows, their mean scores (num_rows,), and its gain."""

    name: str
    arms: Arms
    a: Floats
    b: Floats
    gain: SignedGain


def split(
    arms: Arms,
    column: str,
    names: Sequence[str],
    *,
    sign: float,
    margin: float | None,
    shares: Mapping[str, float] | None = None,
    num_columns: int = 1,
) -> tuple[SliceColumn, SignedGain]:
    """Return the parts of the difference, and the gain at fixed shares with its error.

    Args:
        arms: both arms, with the codes of the column.
        column: the column.
        names: the value of each code.
        sign: -1 where less of the metric is better.
        margin: the loss that does not matter; None counts as 0 for a reversal.
        shares: the share of each value; None for those of both arms together.
        num_columns: columns of which any one may fail the whole.

    Raises:
        DataError: no slice is in both arms, or a share is of a value that neither arm has.
    """
    cells, num_left_out = _cells(arms, column, names, sign)
    weights = _shares(cells, shares, column)
    worse, _ = adjust([cell.gain.p_worse(margin or 0.0) for cell in cells])
    results = [
        _result(cell, weights[cell.name], margin, is_worse=p * num_columns < _LEVEL)
        for cell, p in zip(cells, worse, strict=True)
    ]
    fixed = _fixed(arms, cells, weights, sign)
    raw, within, mix = _parts(cells, sign)
    is_reversal = raw * within < 0 and abs(raw) > (margin or 0.0)
    found = SliceColumn(
        column=column,
        slices=tuple(sorted(results, key=lambda one: (-one.share, one.name))),
        raw=raw,
        within=within,
        mix=mix,
        standardized=fixed.interval(),
        is_reversal=is_reversal,
        num_left_out=num_left_out,
        **_odds(cells),
    )
    return found, fixed


def _fixed(
    arms: Arms, cells: Sequence[_Cell], weights: Mapping[str, float], sign: float
) -> SignedGain:
    """Return the gain at the shares; one user, or one training, may be in several slices."""
    whole = gain_of(arms, sign=sign)
    parts = []
    for cell in cells:
        one, weight = cell.gain, weights[cell.name]
        # One row of an arm has no spread of its own, so it gets that of all rows.
        known = one.error if one.freedom else whole.error * math.sqrt(whole.num / one.num)
        parts.append((weight * known, one.freedom or whole.freedom))
    mean = math.fsum(weights[cell.name] * cell.gain.mean for cell in cells)
    error, num = math.hypot(*(part for part, _ in parts)), sum(cell.gain.num for cell in cells)
    both = (arms.reference, arms.candidate)
    if all(one.groups is None and len(one.scores) == 1 for one in both):
        return SignedGain(mean, error, num, freedom_of(parts, error))
    rows = (
        _weighted([(cell.arms.reference, weights[cell.name]) for cell in cells]),
        _weighted([(cell.arms.candidate, weights[cell.name]) for cell in cells]),
    )
    again = gain_of(Arms(*rows, all(cell.arms.is_paired for cell in cells)), sign=sign)
    return SignedGain(mean, max(error, again.error), num, again.freedom)


def _weighted(parts: Sequence[tuple[ArmRows, float]]) -> ArmRows:
    """Return the rows of slices; their mean is that at the shares, their spread within slices."""
    import numpy as np

    means = [one.scores.mean(axis=1, keepdims=True) for one, _ in parts]
    middle = sum(share * mean for (_, share), mean in zip(parts, means, strict=True))
    num = sum(one.num for one, _ in parts)
    scores = [
        middle + (one.scores - mean) * (share * num / one.num)
        for (one, share), mean in zip(parts, means, strict=True)
    ]
    groups = [one.groups for one, _ in parts if one.groups is not None]
    return ArmRows(scores=np.hstack(scores), groups=np.concatenate(groups) if groups else None)


def _cells(arms: Arms, column: str, names: Sequence[str], sign: float) -> tuple[list[_Cell], int]:
    left_out, cells = 0, list[_Cell]()
    codes_a, codes_b = arms.reference.slices[column], arms.candidate.slices[column]
    by_a, by_b = _places(codes_a), _places(codes_b)
    for code, name in enumerate(names):
        a, b = by_a.get(code), by_b.get(code)
        if a is None or b is None:
            left_out += sum(0 if one is None else len(one) for one in (a, b))
            continue
        try:
            one, other = arms.reference.chosen(a), arms.candidate.chosen(b)
        except DataError:  # a slice of one class has no area under the curve
            left_out += len(a) + len(b)
            continue
        part = Arms(one, other, arms.is_paired and len(a) == len(b))
        gain = gain_of(part, sign=sign)
        cells.append(_Cell(name, part, one.mean_scores(), other.mean_scores(), gain))
    if not cells:
        raise DataError(f"EmptySlice: no value of `{column}` is in both arms.")
    return cells, left_out


def _places(codes: Codes) -> dict[int, Codes]:
    """Return the places of the rows of each code, in order."""
    import numpy as np

    order = np.argsort(codes, kind="stable")
    found, begins = np.unique(codes[order], return_index=True)
    parts = np.split(order, begins[1:])
    return {int(code): part for code, part in zip(found, parts, strict=True)}


def _shares(
    cells: Sequence[_Cell], shares: Mapping[str, float] | None, column: str
) -> dict[str, float]:
    if shares is None:
        sizes = {cell.name: len(cell.a) + len(cell.b) for cell in cells}
    else:
        known = {cell.name for cell in cells}
        missing = sorted(name for name in shares if name not in known)
        if missing:
            raise DataError(
                f"EmptySlice: a share is given for {', '.join(map(repr, missing))} of `{column}`, "
                "which not both arms have."
            )
        sizes = {cell.name: shares.get(cell.name, 0.0) for cell in cells}  # type: ignore[misc]
    whole = math.fsum(sizes.values())
    if whole <= 0:
        raise DataError(f"the shares of `{column}` add up to {whole:g}; they must be above 0.")
    return {name: size / whole for name, size in sizes.items()}


def _parts(cells: Sequence[_Cell], sign: float) -> tuple[float, float, float]:
    """Return the whole difference, its part within slices, and that of their shares."""
    num_a = math.fsum(len(cell.a) for cell in cells)
    num_b = math.fsum(len(cell.b) for cell in cells)
    within, mix = [], []
    for cell in cells:
        w1, w2 = len(cell.a) / num_a, len(cell.b) / num_b
        m1, m2 = float(cell.a.mean()), float(cell.b.mean())
        within.append(sign * (w1 + w2) / 2 * (m2 - m1))
        mix.append(sign * (m1 + m2) / 2 * (w2 - w1))
    return math.fsum([*within, *mix]), math.fsum(within), math.fsum(mix)


def _result(cell: _Cell, share: float, margin: float | None, *, is_worse: bool) -> SliceResult:
    allowed = margin or 0.0
    outcome = judge(cell.gain, allowed)
    if outcome is Outcome.FAIL and not is_worse:
        outcome = Outcome.INCONCLUSIVE
    is_open = outcome is Outcome.INCONCLUSIVE
    return SliceResult(
        name=cell.name,
        num_reference=len(cell.a),
        num_candidate=len(cell.b),
        reference=float(cell.a.mean()),
        candidate=float(cell.b.mean()),
        share=share,
        gain=cell.gain.interval(),
        outcome=outcome,
        num_needed=cell.gain.num_needed(allowed) if is_open else None,
    )


def _odds(cells: Sequence[_Cell]) -> dict[str, Any]:
    """Return the odds of 1 in the candidate over the reference, pooled and within slices."""
    if not all(is_binary(cell.a) and is_binary(cell.b) for cell in cells):
        return {}
    import numpy as np
    from statsmodels.stats.contingency_tables import StratifiedTable

    tables = [
        np.array(
            [
                [cell.b.sum(), len(cell.b) - cell.b.sum()],
                [cell.a.sum(), len(cell.a) - cell.a.sum()],
            ],
            dtype=float,
        )
        for cell in cells
    ]
    whole = sum(tables)
    pooled = None
    if (whole > 0).all():  # type: ignore[union-attr]
        pooled = float(whole[0, 0] * whole[1, 1] / (whole[0, 1] * whole[1, 0]))  # type: ignore[index]
    if len(tables) < 2 or pooled is None:
        return {"pooled_odds_ratio": pooled}
    with np.errstate(all="ignore"):
        found = StratifiedTable(tables)
        low, high = found.oddsratio_pooled_confint(alpha=_LEVEL)
        middle = float(found.oddsratio_pooled)
        ratio = Interval(estimate=middle, low=float(low), high=float(high), n=len(tables))
        p = float(found.test_null_odds(correction=False).pvalue)
        homogeneous = float(found.test_equal_odds().pvalue)
    return {
        "pooled_odds_ratio": pooled,
        "odds_ratio": ratio if all(map(math.isfinite, (ratio.low, ratio.high))) else None,
        "p_association": p if math.isfinite(p) else None,
        "p_homogeneous": homogeneous if math.isfinite(homogeneous) else None,
    }
