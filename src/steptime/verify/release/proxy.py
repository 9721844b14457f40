"""Judges whether a metric stands for another, by experiments that made both worse on purpose.

Effects of an experiment on two metrics share the noise of their units, so weak experiments make
proxies of nothing. The covariance of that noise is taken out, and what remains must be at least
half of the spread.

Sources: A. Bibaut et al., KDD 2024, for the covariance without noise and the jackknife over
experiments; M. G. Kendall, Biometrika 30, 1938. The degradations, the share of signal that is
asked for, and the decision are ours.
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
from steptime.verify.release.still import judge_still, mean_gain
from steptime.verify.values import Outcome
from steptime.verify.values.release_verdict import Rung

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

_LEAST_SHARE = 0.5
"""At 0.2, even the correlation without noise spans -1 to 0.82; a third of the draws has none."""

_LEAST_EXPERIMENTS = 3
_LEAST_DOSES = 4
"""The smallest one-sided p of Kendall's exact test is 0.042 of four doses, and 0.17 of three."""

_LAG_AGREES = 0.8
_MOST = (1.0, math.inf, 1.0)
"""Of the share of signal, the slope and the correlation."""


def judge_rung(
    metric: ReleaseMetric,
    target: ReleaseMetric,
    experiments: Sequence[MetricExperiment],
    *,
    threshold: float = 0.5,
) -> Rung:
    """Return whether a metric stands for its target.

    Args:
        metric: the proxy.
        target: what it stands for.
        experiments: with the gains of both, signed so that more is better.
        threshold: the lower bound of the correlation must lie above it.
    """
    pair = (metric.name, target.name)
    both = [one for one in experiments if all(name in one.gains for name in pair)]
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
    effects, noise = _arrays(moves, pair)
    share, slope, correlation = _jackknifed(effects, noise)
    kinds, agree, p = _directions(moves, pair)
    num_doses_kinds, num_monotone = _monotone(both, metric.name)
    naive = _correlation(effects)
    rung = replace(
        rung,
        signal_share=None if share is None else share.estimate,
        naive_correlation=naive,
        correlation=correlation,
        slope=slope,
        num_kinds=kinds,
        num_kinds_agree=agree,
        p_direction=p,
        num_doses_kinds=num_doses_kinds,
        num_monotone=num_monotone,
        lag=_honest_lag(moves, pair),
        **proxima_scores(moves, pair, naive),
    )
    aa, strongest = _same(both, (metric, target)), float(abs(effects[:, 0]).max())
    outcome, reason = _judged(rung, aa, strongest, margin=target.margin, threshold=threshold)
    return replace(rung, outcome=outcome, reason=reason)


def _judged(
    rung: Rung, aa: Outcome | None, strongest: float, *, margin: float, threshold: float
) -> tuple[Outcome, str | None]:
    """Return the answer, and why it is not PASS."""
    if rung.signal_share is None:
        return Outcome.INCONCLUSIVE, "zero_variance"
    if rung.signal_share < _LEAST_SHARE:
        return Outcome.INCONCLUSIVE, "weak_experiments"
    if aa is Outcome.FAIL:
        return Outcome.FAIL, "aa_moved"
    r, slope = rung.correlation, rung.slope
    if slope is not None and max(slope.high, 0.0) * strongest < margin:
        return Outcome.FAIL, "no_consequence"
    if r is not None and r.high < threshold:
        return Outcome.FAIL, "no_correlation"
    if r is None or r.low <= threshold:
        return Outcome.INCONCLUSIVE, "correlation_open"
    if rung.p_direction is None or rung.p_direction >= LEVEL:
        return Outcome.INCONCLUSIVE, "direction_open"
    if aa is not Outcome.PASS:
        return Outcome.INCONCLUSIVE, "no_aa"
    return Outcome.PASS, None


def _arrays(moves: Sequence[MetricExperiment], pair: tuple[str, str]) -> tuple[Floats, Floats]:
    """Return the effects (num, 2), and the covariance of their noise (num, 2, 2)."""
    import numpy as np

    effects = np.array([[one.gains[name].mean for name in pair] for one in moves])
    noise = np.zeros((len(moves), 2, 2))
    for i, one in enumerate(moves):
        noise[i] = one.noise.get(pair, one.noise.get((pair[1], pair[0]), 0.0))
        np.fill_diagonal(noise[i], [one.gains[name].error ** 2 for name in pair])
    return effects, noise


def _moments(effects: Floats, noise: Floats) -> Floats:
    """Return the share of signal, the slope and the correlation without noise; NaN for none."""
    import numpy as np

    whole: Floats = np.asarray(np.cov(effects, rowvar=False))
    (ss, sy), (_, yy) = whole - noise.mean(axis=0)
    share = ss / whole[0, 0] if whole[0, 0] > 0 else math.nan
    slope = sy / ss if ss > 0 else math.nan
    return np.array([share, slope, sy / math.sqrt(ss * yy) if ss > 0 and yy > 0 else math.nan])


def _jackknifed(effects: Floats, noise: Floats) -> list[Interval | None]:
    """Return the moments with two-sided intervals of 90 % by leaving out each experiment."""
    import numpy as np
    from scipy.stats import t

    num = len(effects)
    middles = _moments(effects, noise)
    others = [_moments(np.delete(effects, i, 0), np.delete(noise, i, 0)) for i in range(num)]
    reaches = float(t.isf(LEVEL, num - 1)) * math.sqrt(num - 1) * np.std(others, axis=0)
    found = list[Interval | None]()
    for middle, reach, most in zip(middles.tolist(), reaches.tolist(), _MOST, strict=True):
        low, mid, high = (
            max(-most, min(x, most)) for x in (middle - reach, middle, middle + reach)
        )
        is_known = math.isfinite(middle) and math.isfinite(reach)
        found.append(Interval(estimate=mid, low=low, high=high, n=num) if is_known else None)
    return found


def _correlation(effects: Floats) -> float | None:
    import numpy as np

    if len(effects) < 2 or (effects.std(axis=0) == 0).any():
        return None
    both: Floats = np.asarray(np.corrcoef(effects, rowvar=False))
    return float(both[0, 1])


def _directions(
    moves: Sequence[MetricExperiment], pair: tuple[str, str]
) -> tuple[int, int, float | None]:
    """Return the kinds of degradation, those that move both the same way, and p by chance."""
    from scipy.stats import binomtest

    kinds = dict[str, list[MetricExperiment]]()
    for one in moves:
        if one.is_degraded:
            kinds.setdefault(one.kind, []).append(one)
    agree = sum(
        math.prod(math.fsum(one.gains[name].mean for one in group) for name in pair) > 0
        for group in kinds.values()
    )
    if not kinds:
        return 0, 0, None
    return len(kinds), agree, float(binomtest(agree, len(kinds), alternative="greater").pvalue)


def _monotone(both: Sequence[MetricExperiment], name: str) -> tuple[int, int]:
    """Return the kinds with four doses or more, and those whose loss grows with the dose."""
    from scipy.stats import kendalltau

    same = [one.gains[name].mean for one in both if one.dose == 0]
    start = [(0.0, -math.fsum(same) / len(same))] if same else []
    kinds = dict[str, list[tuple[float, float]]]()
    for one in both:
        if one.is_degraded and one.dose is not None:
            kinds.setdefault(one.kind, list(start)).append((one.dose, -one.gains[name].mean))
    enough = [found for found in kinds.values() if len(dict(found)) >= _LEAST_DOSES]
    grows = 0
    for points in enough:
        doses, losses = zip(*points, strict=True)
        p = kendalltau(doses, losses, alternative="greater").pvalue
        grows += bool(p < LEVEL)
    return len(enough), grows


def _same(both: Sequence[MetricExperiment], metrics: Sequence[ReleaseMetric]) -> Outcome | None:
    """Return whether A/A moves neither metric; None where there is no A/A."""
    same = [one for one in both if one.dose == 0]
    if not same:
        return None
    found = {
        judge_still(mean_gain([one.gains[metric.name] for one in same]), metric.margin)
        for metric in metrics
    }
    worst = (Outcome.FAIL, Outcome.INCONCLUSIVE, Outcome.PASS)
    return next(outcome for outcome in worst if outcome in found)


def _honest_lag(moves: Sequence[MetricExperiment], pair: tuple[str, str]) -> float | None:
    """Return the first lag at which the target has the proxy's sign in 80 % of degradations."""
    signs = dict[float, list[bool]]()
    for one in moves:
        if one.is_degraded:
            for lag, gain in one.by_lag.get(pair[1], {}).items():
                signs.setdefault(lag, []).append(gain.mean * one.gains[pair[0]].mean > 0)
    honest = (lag for lag in sorted(signs) if sum(signs[lag]) >= _LAG_AGREES * len(signs[lag]))
    return next(honest, None)
