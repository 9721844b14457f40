"""Is an order as random as a shuffle? Three statistics under the null of a random permutation.

In: indices as they were drawn, and labels. Out: p-values. Nothing is read and nothing is drawn but
from the generator that is made here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

MIN_SAMPLES = 30
"""The normal approximations of the two statistics of indices hold from here on."""

NUM_PERMUTATIONS = 999
"""The smallest p-value that a permutation test can give is then 0.001."""

MAX_CELLS = 4_000_000
"""Samples x permutations of the test of labels: it takes a second then."""


def spearman_z(order: Sequence[int]) -> float:
    """Return how strongly indices rise with their position, in standard deviations.

    It is Spearman's rank correlation rho x sqrt(n - 1), which is normal under a random permutation.

    Source: Kendall and Gibbons, Rank Correlation Methods (1990), section 4.14.
    """
    ranks = _ranks(order)
    places = np.arange(len(ranks), dtype=float)
    ranks, places = ranks - ranks.mean(), places - places.mean()
    scale = math.sqrt(float((ranks**2).sum() * (places**2).sum()))
    return 0.0 if not scale else float(ranks @ places) / scale * math.sqrt(len(order) - 1)


def serial_z(order: Sequence[int]) -> float:
    """Return the correlation of neighbors in an order, in standard deviations.

    It is the circular serial correlation at lag 1 of the ranks: its mean is -1 / (n - 1) and its
    variance is close to 1 / n under a random permutation.

    Source: Wald and Wolfowitz, An exact test for randomness in the non-parametric case (1943).
    """
    ranks = _ranks(order)
    ranks = ranks - ranks.mean()
    total = float((ranks**2).sum())
    if not total:
        return 0.0
    found = float(ranks @ np.roll(ranks, -1)) / total
    n = len(order)
    return (found + 1 / (n - 1)) * math.sqrt(n)


def two_sided(z: float) -> float:
    """Return the probability of a normal value at least that far from zero."""
    return math.erfc(abs(z) / math.sqrt(2))


def class_dispersion(labels: Sequence[int], sizes: Sequence[int]) -> float:
    """Return how unevenly classes fall on batches; 1 is what a random order gives on average.

    It is Pearson's statistic of the table batch x class over its mean under the hypergeometric
    null, n / (n - 1) x (batches - 1) x (classes - 1). Data sorted by class give about the size of a
    batch.

    Args:
        labels: (n,), of the samples in the order in which they come.
        sizes: of the batches; they sum to n.

    Source: Haldane, The exact value of the moments of the distribution of chi-square (1940).
    """
    table, mean = _table(np.asarray(labels), sizes)
    return _pearson(table) / mean if mean else 1.0


def class_p_value(labels: Sequence[int], sizes: Sequence[int], *, seed: int = 0) -> float:
    """Return how likely a random order gives batches that uneven in class, or more so.

    A permutation test: (1 + permutations at least as uneven) / (1 + permutations). Its level is
    exact whatever the classes' sizes.

    Source: Phipson and Smyth, Permutation p-values should never be zero (2010).
    """
    found = np.unique(np.asarray(labels), return_inverse=True)[1]
    generator = np.random.default_rng(seed)
    num = max(99, min(NUM_PERMUTATIONS, MAX_CELLS // max(1, len(found))))
    own = _pearson(_table(found, sizes)[0])
    as_uneven = sum(
        _pearson(_table(generator.permutation(found), sizes)[0]) >= own * (1 - 1e-12)
        for _ in range(num)
    )
    return (1 + as_uneven) / (1 + num)


def _ranks(order: Sequence[int]) -> np.ndarray:
    return np.argsort(np.argsort(np.asarray(order), kind="stable"), kind="stable").astype(float)


def _table(labels: np.ndarray, sizes: Sequence[int]) -> tuple[np.ndarray, float]:
    """Return counts (batches, classes), and the mean of their statistic under the null."""
    codes = np.unique(labels, return_inverse=True)[1]
    num_classes, n = int(codes.max()) + 1, len(codes)
    batch = np.repeat(np.arange(len(sizes)), sizes)
    table = np.bincount(batch * num_classes + codes, minlength=len(sizes) * num_classes)
    mean = n / (n - 1) * (len(sizes) - 1) * (num_classes - 1) if n > 1 else 0.0
    return table.reshape(len(sizes), num_classes).astype(float), mean


def _pearson(table: np.ndarray) -> float:
    expected = table.sum(1, keepdims=True) * table.sum(0, keepdims=True) / table.sum()
    return float(((table - expected) ** 2 / expected).sum())
