"""Judges whether a metric stands for another, by experiments that made both worse on purpose.

Effects of an experiment on two metrics share the noise of their units, so weak experiments make
proxies of nothing. The covariance of that noise is taken out, and what remains must be at least
half of the spread.

Source: A. Bibaut et al., KDD 2024, for the covariance without noise and the jackknife over
experiments. The degradations, kinds as units, the share of signal and the decision are ours.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from steptime.core.interval import Interval
from steptime.verify.model.signed_gains import LEVEL
from steptime.verify.release.proxima import proxima_scores
from steptime.verify.release.release_question import MetricExperiment, ReleaseMetric
from steptime.verify.release.still import judge_still, mean_gain, worst
from steptime.verify.values import Outcome
from steptime.verify.values.release_verdict import Rung

if TYPE_CHECKING:
    from steptime.verify.model.two_arms import Floats

_LEAST_SHARE = 0.5
"""At 0.2, even the correlation without noise spans -1 to 0.82; a third of the draws has none."""

_LEAST_EXPERIMENTS = 3
_LAG_AGREES = 0.8


def judge_rung(
    metric: ReleaseMetric,
    target: ReleaseMetric,
    experiments: Sequence[MetricExperiment],
    *,
    noise: float,
    threshold: float = 0.5,
) -> Rung:
    """Return whether a metric stands for its target.

    Args:
        metric: the proxy.
        target: what it stands for.
        experiments: with the gains of both, signed so that more is better.
        noise: the correlation of the noise of both gains in one experiment.
        threshold: the lower bound of the correlation must lie above it.
    """
    pair = (metric.name, target.name)
    both = [one for one in experiments if pair[0] in one.gains and pair[1] in one.gains]
    moves = [one for one in both if one.dose != 0]
    rung = Rung(
        metric=pair[0],
        target=pair[1],
        outcome=Outcome.INCONCLUSIVE,
        reason="no_experiments",
        num_experiments=len(moves),
    )
    if len(moves) < _LEAST_EXPERIMENTS:
        return rung
    share, slope, correlation, seen = _jackknifed(moves, pair, noise)
    naive = None if seen is None else seen.estimate
    num_kinds, num_agree, p = _directions(moves, pair)
    rung = replace(
        rung,
        signal_share=None if share is None else share.estimate,
        naive_correlation=naive,
        correlation=correlation,
        slope=slope,
        num_kinds=num_kinds,
        num_kinds_agree=num_agree,
        p_direction=p,
        lag=_honest_lag(moves, pair),
        **proxima_scores(moves, pair, naive),
    )
    strongest = max(abs(one.gains[pair[0]].mean) for one in moves)
    is_nothing = slope is not None and max(slope.high, 0.0) * strongest < target.margin
    still = _same(both, (metric, target))
    outcome, reason = _judged(rung, still, is_nothing=is_nothing, threshold=threshold)
    return replace(rung, outcome=outcome, reason=reason)


def _judged(
    rung: Rung, still: Outcome | None, *, is_nothing: bool, threshold: float
) -> tuple[Outcome, str | None]:
    """Return the answer, and why it is not PASS; the first rule that holds decides."""
    share, r, p = rung.signal_share, rung.correlation, rung.p_direction
    fail, left_open = Outcome.FAIL, Outcome.INCONCLUSIVE
    rules = (
        (share is None, left_open, "zero_variance"),
        (share is not None and share < _LEAST_SHARE, left_open, "weak_experiments"),
        (still is fail, fail, "aa_moved"),
        (is_nothing, fail, "no_consequence"),
        (r is not None and r.high < threshold, fail, "no_correlation"),
        (r is None or r.low <= threshold, left_open, "correlation_open"),
        (p is None or p >= LEVEL, left_open, "direction_open"),
        (still is not Outcome.PASS, left_open, "no_aa"),
        (True, Outcome.PASS, None),
    )
    return next((outcome, reason) for holds, outcome, reason in rules if holds)


def _moments(effects: Floats, noise: Floats) -> list[float]:
    """Return the share of signal, then slope and correlation without noise, and with it; or NaN.

    Args:
        effects: of each experiment on both metrics (num_experiments, 2).
        noise: the covariance of the noise of each (num_experiments, 2, 2).
    """
    import numpy as np

    (cs, cy), (_, cz) = whole = np.cov(effects, rowvar=False)
    (ss, sy), (_, yy) = whole - noise.mean(axis=0)
    found = ((ss, cs), (sy, ss), (sy, math.sqrt(max(ss * yy, 0))), (cy, math.sqrt(cs * cz)))
    is_known = ss > 0 and yy > 0
    known = (cs > 0, ss > 0, is_known, cs * cz > 0)
    return [a / b if ok else math.nan for (a, b), ok in zip(found, known, strict=True)]


def _jackknifed(
    moves: Sequence[MetricExperiment], pair: tuple[str, str], noise: float
) -> list[Interval | None]:
    """Return the moments with two-sided intervals of 90 % by leaving out each kind.

    The doses of one kind tell the same; where nothing was degraded, an experiment is its own kind.
    """
    import numpy as np
    from scipy.stats import t

    effects = np.array([[one.gains[name].mean for name in pair] for one in moves])
    errors = np.array([[one.gains[name].error for name in pair] for one in moves])
    shared = errors[:, :, None] * errors[:, None, :] * np.array([[1, noise], [noise, 1]])
    kinds = np.array([one.kind if one.is_degraded else f"= {one.name}" for one in moves])
    kept = [kinds != kind for kind in np.unique(kinds)]
    num, middles = len(kept), _moments(effects, shared)
    others = [_moments(effects[rows], shared[rows]) for rows in kept if rows.sum() > 1]
    reaches = float(t.isf(LEVEL, num - 1)) * math.sqrt(num - 1) * np.std(others, axis=0)
    found = list[Interval | None]()
    for middle, reach, most in zip(middles, reaches.tolist(), (1, math.inf, 1, 1), strict=True):
        ends = np.clip([middle - reach, middle, middle + reach], -most, most)
        low, mid, high = ends.tolist()
        is_known = math.isfinite(middle) and math.isfinite(reach)
        found.append(Interval(estimate=mid, low=low, high=high, n=len(moves)) if is_known else None)
    return found


def _directions(
    moves: Sequence[MetricExperiment], pair: tuple[str, str]
) -> tuple[int, int, float | None]:
    """Return the kinds of degradation, those that move both the same way, and p by chance."""
    from scipy.stats import binomtest

    kinds, agree = {one.kind for one in moves if one.is_degraded}, 0
    for kind in kinds:
        found = [one.gains for one in moves if one.is_degraded and one.kind == kind]
        proxy, target = (math.fsum(gains[name].mean for gains in found) for name in pair)
        agree += proxy * target > 0
    p = float(binomtest(agree, len(kinds), alternative="greater").pvalue) if kinds else None
    return len(kinds), agree, p


def _same(both: Sequence[MetricExperiment], metrics: Sequence[ReleaseMetric]) -> Outcome | None:
    """Return whether A/A moves neither metric; None where there is no A/A."""
    same = [one.gains for one in both if one.dose == 0]
    if not same:
        return None
    return worst(judge_still(mean_gain([one[x.name] for one in same]), x.margin) for x in metrics)


def _honest_lag(moves: Sequence[MetricExperiment], pair: tuple[str, str]) -> float | None:
    """Return the first lag at which the target has the proxy's sign in 80 % of degradations."""
    signs = dict[float, list[bool]]()
    for one in moves:
        for lag, gain in one.by_lag.get(pair[1], {}).items() if one.is_degraded else ():
            signs.setdefault(lag, []).append(gain.mean * one.gains[pair[0]].mean > 0)
    honest = (lag for lag in sorted(signs) if sum(signs[lag]) >= _LAG_AGREES * len(signs[lag]))
    return next(honest, None)
