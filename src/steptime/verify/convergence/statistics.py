"""Welch's interval of a difference of means, its permutation, and how many runs a margin needs.

Source of the interval: B. L. Welch, Biometrika 34, 1947, with Satterthwaite's degrees of freedom.
Source of the level of three looks: S. J. Pocock, Biometrika 64, 1977, adapted to looks at 3, 5 and
10 runs by simulation.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from steptime.errors import MissingExtraError

LEVEL = 0.05
LOOK_LEVELS = {1: LEVEL, 3: 0.021}
"""Level of one look by their number: three looks at 3, 5 and 10 runs have 4.95 % together."""

MOST_RUNS = 10_000
PERMUTATIONS = 20_000


def load_scipy(extra: str = "verify") -> None:
    """Import scipy; `extra` is what the caller's command needs in all.

    Raises:
        MissingExtraError: it is not installed.
    """
    try:
        import scipy.stats  # noqa: F401
    except ImportError as error:
        raise MissingExtraError(
            "Judging over seeds needs scipy, which is not installed.",
            needs=f"steptime[{extra}]",
        ) from error


@dataclass(frozen=True, slots=True)
class MeanGain:
    """A mean gain, its standard error, and the degrees of freedom."""

    mean: float
    error: float
    freedom: float

    def ends(self, level: float) -> tuple[float, float]:
        """Return the ends of the interval; each of them misses with probability `level`."""
        from scipy.stats import t

        reach = float(t.ppf(1 - level, self.freedom)) * self.error
        return self.mean - reach, self.mean + reach

    def p_above(self, bound: float) -> float:
        """Return the probability of such a gain, or a larger one, were the true one `bound`."""
        from scipy.stats import t

        if self.error == 0:
            return 0.0 if self.mean > bound else 1.0
        return float(t.sf((self.mean - bound) / self.error, self.freedom))


def gain_of(reference: Sequence[float], candidate: Sequence[float]) -> MeanGain:
    """Return the gain of a summary where larger is better, by Welch.

    Args:
        reference: one number a run, at least two.
        candidate: the same of the other arm.
    """
    parts = [variance(one) / len(one) for one in (reference, candidate)]
    whole = sum(parts)
    spread = sum(p**2 / (len(o) - 1) for p, o in zip(parts, (reference, candidate), strict=True))
    freedom = whole**2 / spread if spread else float(len(reference) + len(candidate) - 2)
    return MeanGain(mean(candidate) - mean(reference), math.sqrt(whole), freedom)


def paired_gain_of(differences: Sequence[float]) -> MeanGain:
    """Return the gain of pairs: candidate minus reference, where larger is better."""
    error = math.sqrt(variance(differences) / len(differences))
    return MeanGain(mean(differences), error, float(len(differences) - 1))


def mean(values: Sequence[float]) -> float:
    """Return the mean."""
    return math.fsum(values) / len(values)


def variance(values: Sequence[float]) -> float:
    """Return the variance with n - 1."""
    middle = mean(values)
    return math.fsum((value - middle) ** 2 for value in values) / (len(values) - 1)


def permuted_p(
    reference: Sequence[float], candidate: Sequence[float], *, margin: float
) -> float | None:
    """Return the probability of such a gain were the candidate worse by the margin, by permuting.

    All ways to divide the runs are taken where there are at most 20,000, else as many at random,
    always the same ones. None where no division could fall below 5 %.
    """
    from scipy.stats import permutation_test

    ways = math.comb(len(reference) + len(candidate), len(reference))
    if ways * LEVEL < 1:
        return None
    shifted = [value + margin for value in candidate]
    found = permutation_test(
        (shifted, list(reference)),
        lambda x, y, axis: x.mean(axis=axis) - y.mean(axis=axis),
        vectorized=True,
        n_resamples=PERMUTATIONS,
        alternative="greater",
        rng=0,
    )
    return float(found.pvalue)


def power_not_worse(num_runs: int, margin_in_sds: float, *, level: float = LEVEL) -> float:
    """Return how often `not worse` is found with so many runs an arm and no true difference.

    Args:
        num_runs: of each arm, 2 or more.
        margin_in_sds: the margin over the standard deviation of a run, which both arms share.
        level: probability with which a candidate at the margin passes.
    """
    from scipy.stats import nct, t

    freedom = 2 * num_runs - 2
    return float(
        nct.sf(t.ppf(1 - level, freedom), freedom, margin_in_sds * math.sqrt(num_runs / 2))
    )


def power_of_pairs(num_pairs: int, margin_in_sds: float, *, level: float = LEVEL) -> float:
    """Return how often `not worse` is found with so many pairs and no true difference.

    Args:
        num_pairs: 2 or more.
        margin_in_sds: the margin over the standard deviation of the pairs' differences.
        level: probability with which a candidate at the margin passes.
    """
    from scipy.stats import nct, t

    freedom = num_pairs - 1
    bound = t.ppf(1 - level, freedom)
    return float(nct.sf(bound, freedom, margin_in_sds * math.sqrt(num_pairs)))


def power_still(num_runs: int, margin_in_sds: float, *, level: float = LEVEL) -> float:
    """Return how often `still` (neither worse nor better by the margin) is found, likewise.

    The standard deviation that will be found has a chi distribution; over it is integrated.
    """
    from scipy.integrate import quad
    from scipy.stats import chi, norm, t

    freedom = 2 * num_runs - 2
    error = math.sqrt(2 / num_runs)
    reach = float(t.ppf(1 - level, freedom)) * error

    def found(scale: float) -> float:
        """Return the density of a scale times the probability of `still` with it."""
        room = margin_in_sds - reach * scale / math.sqrt(freedom)
        return (
            0.0 if room <= 0 else float((2 * norm.cdf(room / error) - 1) * chi.pdf(scale, freedom))
        )

    most = margin_in_sds / reach * math.sqrt(freedom)
    return float(quad(found, 0, min(most, math.sqrt(freedom) * 10), limit=200)[0])


def runs_needed(
    margin_in_sds: float,
    *,
    power: float = 0.9,
    level: float = LEVEL,
    is_still: bool = False,
    are_paired: bool = False,
) -> int | None:
    """Return the runs of each arm that decide a margin with a power; None beyond 10,000.

    With `are_paired`, the margin is over the standard deviation of the pairs' differences.
    """
    measure = power_still if is_still else power_of_pairs if are_paired else power_not_worse
    low, high = 1, 2
    while measure(high, margin_in_sds, level=level) < power:
        if high >= MOST_RUNS:
            return None
        low, high = high, min(2 * high, MOST_RUNS)
    while high - low > 1:
        middle = (low + high) // 2
        if measure(middle, margin_in_sds, level=level) < power:
            low = middle
        else:
            high = middle
    return high


def margin_decided(
    num_runs: int, *, power: float = 0.9, level: float = LEVEL, is_still: bool = False
) -> float:
    """Return the smallest margin, in standard deviations, that so many runs an arm decide."""
    from scipy.optimize import brentq

    measure = power_still if is_still else power_not_worse
    return float(brentq(lambda m: measure(num_runs, m, level=level) - power, 1e-6, 1e3, xtol=1e-6))


def sd_for_planning(sd: float, num_runs: int) -> float:
    """Return the upper 80 % bound of a standard deviation that few runs showed."""
    from scipy.stats import chi2

    return sd * math.sqrt((num_runs - 1) / float(chi2.ppf(0.2, num_runs - 1)))


def diverges_more_p(num_reference: tuple[int, int], num_candidate: tuple[int, int]) -> float:
    """Return Fisher's probability of so many more diverged runs of the candidate by chance.

    Args:
        num_reference: runs of the reference that diverged, and that did not.
        num_candidate: the same of the candidate.
    """
    from scipy.stats import fisher_exact

    return float(fisher_exact([num_candidate, num_reference], alternative="greater")[1])
