"""Judges whether probabilities come true as often as they promise.

In: a probability and 0 or 1 for each row. Out: a `Calibration`. The error over bins is judged
against its own null, which a calibrated model with the same probabilities would show, because it
is never 0 on finitely many rows.

Sources: Naeini et al., AAAI 2015, for the error; Bröcker, Smith, Weather and Forecasting 22, 2007,
for its null; Błasiok, Nakkiran, ICLR 2024, for the smooth error; Arrieta-Ibarra et al., JMLR 23,
2022, and Spiegelhalter, 1986, by MAPIE, for tests without bins.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from steptime.core.interval import Interval
from steptime.errors import DataError
from steptime.verify.model.repair import repairs_of
from steptime.verify.values import Outcome
from steptime.verify.values.calibration_result import Calibration, ScoreBin

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

LEVEL = 0.05
NUM_BINS = 15
_COARSE, _FINE = 10, 20
_CANCELS = 2.0
"""A fine error above so many coarse ones, and beyond chance, is one that cancels in coarse bins."""

_NUM_DRAWS = 1999
_SEED = 20260101
_EXACT_ROWS = 20_000
"""Rows up to which each row of a null is drawn; of more, the sum of each bin, as normal."""

_SHIFTS = (0.005, 0.01, 0.02, 0.03, 0.05, 0.07, 0.1, 0.15, 0.2, 0.3)
_POWER, _POWER_DRAWS = 0.8, 200
_PROMISE = 0.1
"""The error of a bin for which the rows that it needs are said."""

_GRID = 2000


@dataclass(frozen=True, slots=True)
class Promises:
    """The probability of each row (num_rows,), and whether it came true (num_rows,), 0 or 1.

    `is_of_top_label`: of the predicted label being right, where there are more than two.
    """

    probabilities: Floats
    happened: Floats
    is_of_top_label: bool = False


def judge_calibration(promises: Promises, *, arm: str) -> Calibration:
    """Return how the probabilities of one arm fit what happened.

    Raises:
        DataError: a probability is outside of [0, 1] (`ProbabilitiesInvalid`), or only one of both
            classes is there (`OneClassOnly`).
    """
    import numpy as np

    _check(promises, arm)
    order = np.argsort(promises.probabilities, kind="stable")
    p, y = promises.probabilities[order], promises.happened[order]
    del order
    bins = _begins(p, NUM_BINS)
    found = _error(bins, y - p)
    null = _null_sums(p, bins)
    p_value = float(_p_of(_sums(bins, y - p)[None], null)[0])
    errors = np.abs(null).sum(axis=1) / len(p)
    is_off = p_value < LEVEL
    coarse, fine = (_error(_begins(p, num), y - p) for num in (_COARSE, _FINE))
    fine_null = np.abs(_null_sums(p, _begins(p, _FINE))).sum(axis=1) / len(p)
    fine_chance = float(np.quantile(fine_null, 1 - LEVEL))
    p_ks, p_kuiper, p_spiegelhalter = _tests_without_bins(p, y)
    return Calibration(
        arm=arm,
        is_of_top_label=promises.is_of_top_label,
        num=len(p),
        outcome=Outcome.FAIL if is_off else Outcome.PASS,
        error=found,
        error_of_chance=float(errors.mean()),
        limit_of_chance=float(np.quantile(errors, 1 - LEVEL)),
        p=p_value,
        least_seen=_least_seen(p, bins, null),
        error_coarse=coarse,
        error_fine=fine,
        is_cancelling=fine > _CANCELS * coarse and fine > fine_chance,
        error_smooth=_smooth_error(p, y),
        mean_shift=float(p.mean() - y.mean()),
        p_kolmogorov_smirnov=p_ks,
        p_kuiper=p_kuiper,
        p_spiegelhalter=p_spiegelhalter,
        bins=_score_bins(p, y, bins),
        num_per_bin=_num_per_bin(len(bins)),
        repairs=repairs_of(p, y, error=lambda q: _error_of(q, y)) if is_off else (),
    )


def _check(promises: Promises, arm: str) -> None:
    p, y = promises.probabilities, promises.happened
    num_bad = int((~((p >= 0) & (p <= 1))).sum())
    if num_bad:
        raise DataError(
            f"ProbabilitiesInvalid: `probability` is not between 0 and 1 in {num_bad:,} of "
            f"{len(p):,} rows of the {arm} arm."
        )
    if y.min() == y.max():
        raise DataError(
            f"OneClassOnly: each of the {len(y):,} rows of the {arm} arm came out as {y[0]:g}, so "
            "no promise can be held against what happened.",
        )


def _begins(p: Floats, num: int) -> Ints:
    """Return where bins of equally many rows begin (num_bins,); equal probabilities share one.

    `p` is in order (num_rows,).
    """
    import numpy as np

    places = np.arange(num) * len(p) // num
    return np.unique(np.searchsorted(p, p[places], side="left"))


def _sums(begins: Ints, residuals: Floats) -> Floats:
    """Return the sum of the residuals of each bin (num_bins,)."""
    import numpy as np

    return np.asarray(np.add.reduceat(residuals, begins))


def _error(begins: Ints, residuals: Floats) -> float:
    return float(abs(_sums(begins, residuals)).sum() / len(residuals))


def _p_of(sums: Floats, null: Floats) -> Floats:
    """Return how often a calibrated model is as far off, by its bins or by what they add up to.

    The error over bins sees any shape, and hardly a small shift of all; the largest sum of bins
    in order, as of Kolmogorov and Smirnov, sees that. Each draw of the null is ranked by both, so
    that the smaller of two ranks has a null of its own.

    Args:
        sums: of each bin (num_models, num_bins).
        null: the same of draws (num_draws, num_bins).

    Returns:
        Probabilities (num_models,).
    """
    import numpy as np

    least = np.full(len(sums), len(null) + 1)
    least_null = np.full(len(null), len(null))
    for of in (_shape, _shift):
        drawn = np.sort(of(null))
        least = np.minimum(least, 1 + len(null) - np.searchsorted(drawn, of(sums) - 1e-9))
        least_null = np.minimum(least_null, len(null) - np.searchsorted(drawn, of(null) - 1e-9))
    more = np.searchsorted(np.sort(least_null), least, side="right")
    return np.asarray((1 + more) / (1 + len(null)))


def _shape(sums: Floats) -> Floats:
    import numpy as np

    return np.asarray(np.abs(sums).sum(axis=1))


def _shift(sums: Floats) -> Floats:
    import numpy as np

    return np.asarray(np.abs(sums.cumsum(axis=1)).max(axis=1))


def _error_of(p: Floats, y: Floats) -> float:
    """Return the error of probabilities in any order."""
    import numpy as np

    order = np.argsort(p, kind="stable")
    return _error(_begins(p[order], NUM_BINS), (y - p)[order])


def _null_sums(p: Floats, begins: Ints, *, shift: float = 0.0, num: int = _NUM_DRAWS) -> Floats:
    """Return sums of bins (num, num_bins) where rows come true by their probability less a shift.

    `p` is in order (num_rows,).
    """
    import numpy as np

    chance = np.random.default_rng(_SEED)
    true = np.clip(p - shift, 0, 1) if shift else p
    if len(p) <= _EXACT_ROWS:
        return np.array([_sums(begins, (chance.random(len(p)) < true) - p) for _ in range(num)])
    mean, spread = _sums(begins, true - p), np.sqrt(_sums(begins, true * (1 - true)))
    return np.asarray(mean + spread * chance.standard_normal((num, len(begins))))


def _least_seen(p: Floats, begins: Ints, null: Floats) -> float | None:
    """Return the least constant overconfidence that is found in 80 % of the draws."""
    for shift in _SHIFTS:
        drawn = _null_sums(p, begins, shift=shift, num=_POWER_DRAWS)
        if float((_p_of(drawn, null) < LEVEL).mean()) >= _POWER:
            return shift
    return None


def _tests_without_bins(p: Floats, y: Floats) -> tuple[float | None, float | None, float | None]:
    import numpy as np
    from mapie.metrics import calibration as mapie

    with np.errstate(all="ignore"):
        found = [
            float(test(y, p))
            for test in (
                mapie.kolmogorov_smirnov_p_value,
                mapie.kuiper_p_value,
                mapie.spiegelhalter_p_value,
            )
        ]
    first, second, third = (
        min(max(one, 0.0), 1.0) if math.isfinite(one) else None for one in found
    )
    return first, second, third


def _smooth_error(p: Floats, y: Floats) -> float:
    """Return the error smoothed by a Gaussian kernel as wide as the error itself."""
    import numpy as np
    from scipy.ndimage import gaussian_filter1d

    at = np.minimum((p * _GRID).astype(np.int64), _GRID - 1)
    residuals = np.bincount(at, weights=y - p, minlength=_GRID) / len(p)

    def smoothed(width: float) -> float:
        drawn = gaussian_filter1d(residuals, width * _GRID, mode="reflect", truncate=5.0)
        return float(np.abs(drawn).sum())

    low, high = 1.0 / _GRID, 1.0
    for _ in range(14):  # until the width is known to a tenth of a per mille
        width = (low + high) / 2
        low, high = (width, high) if smoothed(width) > width else (low, width)
    return smoothed(high)


def _score_bins(p: Floats, y: Floats, begins: Ints) -> tuple[ScoreBin, ...]:
    import numpy as np
    from scipy.stats import binom, binomtest
    from statsmodels.stats.multitest import multipletests

    ends = np.append(begins[1:], len(p))
    sizes = ends - begins
    right = np.add.reduceat(y, begins)
    promised = np.add.reduceat(p, begins) / sizes
    tests = [
        binomtest(round(float(k)), int(n), min(max(float(q), 0.0), 1.0))
        for k, n, q in zip(right, sizes, promised, strict=True)
    ]
    low, high = binom.interval(1 - LEVEL, sizes, np.clip(promised, 0, 1)) / sizes
    broken = multipletests([test.pvalue for test in tests], alpha=LEVEL, method="holm")[0]
    found = []
    for i, test in enumerate(tests):
        reach = test.proportion_ci(1 - LEVEL)
        num = int(sizes[i])
        happened = Interval(
            estimate=float(right[i]) / num, low=float(reach.low), high=float(reach.high), n=num
        )
        found.append(
            ScoreBin(
                low=float(p[begins[i]]),
                high=float(p[ends[i] - 1]),
                num=num,
                promised=float(promised[i]),
                happened=happened,
                chance_low=float(low[i]),
                chance_high=float(high[i]),
                is_broken=bool(broken[i]),
            )
        )
    return tuple(found)


def _num_per_bin(num_bins: int) -> int:
    """Return rows for an error of 0.1 at 0.6, with Bonferroni over the bins and 80 % power."""
    from scipy.stats import norm

    reach = norm.isf(LEVEL / 2 / num_bins) + norm.isf(1 - _POWER)
    return math.ceil(float(reach / _PROMISE) ** 2 * 0.6 * 0.4)
