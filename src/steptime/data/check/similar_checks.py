"""Checks whether pictures of the evaluation look like pictures of the training data.

In: the hashes of two sources. Out: a `DataCheck`, which fails only where there are more pairs than
unrelated pictures give.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np

from steptime.data.check.epoch_checks import failed, passed, undecided
from steptime.data.check.image_hashes import dhash, is_telling, pixels_of, similar_pairs
from steptime.data.values.data_check_values import DataCheck

FALSE_RATE = 2.4e-6
"""Of pairs of unrelated pictures, at most so many are taken for one: the upper 95 % bound where
`benchmarks/data/data_bugs.py --pictures` found 0 of 1,274,406 pairs of pictures."""

LEVEL = 0.01
NUM_SHOWN = 5


class Pictures:
    """The hashes of the pictures of one source, whose columns `images` must hold some."""

    def __init__(self, images: Collection[str] = ()) -> None:
        self.images = images
        self.numbers: list[int] = []
        self.hashes: list[int] = []
        self.damaged: list[tuple[int, str]] = []

    def see(self, number: int, sample: Mapping[str, Any]) -> None:
        """Take a sample's first picture in, if it has one."""
        for name, value in sample.items():
            try:
                pixels = pixels_of(value, is_image=name in self.images)
            except ValueError as error:
                self.damaged.append((number, f"its picture cannot be decoded: {error}"))
                return
            if pixels is not None:
                self.numbers.append(number)
                self.hashes.append(dhash(pixels))
                return


def check_similar(
    train: Pictures, evaluation: Pictures, *, places: tuple[Callable[[int], str], ...]
) -> DataCheck | None:
    """Return whether pictures of the evaluation are in the training data, scaled or compressed."""
    name = "similar_images"
    if not train.hashes or not evaluation.hashes:
        return None
    telling = [[i for i, h in enumerate(s.hashes) if is_telling(h)] for s in (train, evaluation)]
    one = np.array([train.hashes[i] for i in telling[0]], dtype=np.uint64)
    other = np.array([evaluation.hashes[i] for i in telling[1]], dtype=np.uint64)
    pairs = list(similar_pairs(one, other))
    expected = FALSE_RATE * len(one) * len(other)
    told = f"{len(pairs):,} pairs of {len(one):,} x {len(other):,} pictures look alike"
    if not pairs:
        return passed(name, told, None)
    chance = _at_least(len(pairs), expected)
    numbers = [
        (train.numbers[telling[0][i]], evaluation.numbers[telling[1][j]])
        for i, j in pairs[:NUM_SHOWN]
    ]
    evidence = tuple(f"{places[1](b)} ~ {places[0](a)}" for a, b in numbers)
    by_chance = f"unrelated pictures give {expected:.2g}"
    advice = "Look at these pairs: the same picture, scaled or compressed again, is a leak."
    if chance > LEVEL:
        return undecided(name, f"{told}; {by_chance}", None, evidence=evidence, advice=advice)
    return failed(name, f"{told}; {by_chance}", None, evidence=evidence, advice=advice)


def _at_least(num: int, expected: float) -> float:
    """Return the probability of `num` or more of a Poisson number; 1 - the sum of those below."""
    if not expected:
        return 0.0
    below = sum(
        math.exp(k * math.log(expected) - expected - math.lgamma(k + 1)) for k in range(num)
    )
    return max(0.0, 1.0 - below)
