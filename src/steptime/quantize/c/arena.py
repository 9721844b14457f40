"""Places all values of a network in one block of bytes, so that those that live at once are apart.

In: what runs, in order, with what it reads and writes. Out: where each value begins, the size of
the block, and the size that no placement could go below: the most bytes that live at once.

Source: greedy by size, as in Y. Pisarchyk, J. Lee, arXiv 2001.03288.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from steptime.quantize.integer.integer_network import IntegerNetwork
from steptime.quantize.integer.integer_operators import IntegerReshape
from steptime.quantize.integer.recurrence import IntegerRecurrence

_ALIGNED = 4
_TRIES = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Arena:
    """Where values lie.

    Attributes:
        offsets: of each value [bytes].
        size: of the block [bytes].
        bound: the most that live at once [bytes].
    """

    offsets: Mapping[str, int]
    size: int
    bound: int


def plan_arena(network: IntegerNetwork) -> Arena:
    """Return where each value lies; a reshape lies where its input does."""
    owner = {network.input: network.input}
    for one in network.operators:
        is_same = isinstance(one, IntegerReshape)
        owner[one.output] = owner[one.inputs[0]] if is_same else one.output
    lives: dict[str, tuple[int, int]] = {network.input: (0, 0)}
    for at, one in enumerate(network.operators):
        for name in (*one.inputs, one.output):
            begin = lives.get(owner[name], (at, at))[0]
            lives[owner[name]] = (begin, at)
    scratch: dict[str, int] = {}
    for at, one in enumerate(network.operators):
        if isinstance(one, IntegerRecurrence):
            owner[cell_of(one)] = cell_of(one)
            lives[cell_of(one)], scratch[cell_of(one)] = (at, at), 2 * one.num_hidden
    last = len(network.operators)
    lives[owner[network.output]] = (lives[owner[network.output]][0], last)
    sizes = {name: _aligned(scratch.get(name) or _bytes_of(network, name)) for name in lives}
    bound = max(
        sum(sizes[name] for name, (begin, end) in lives.items() if begin <= at <= end)
        for at in range(last + 1)
    )
    placed = _best_placement(lives, sizes, bound)
    return Arena(
        offsets={name: placed[owned] for name, owned in owner.items()},
        size=max(placed[name] + sizes[name] for name in placed),
        bound=bound,
    )


def cell_of(one: IntegerRecurrence) -> str:
    """Return how the 16-bit cell of a recurrent layer is called."""
    return f"{one.output} cell"


def _bytes_of(network: IntegerNetwork, value: str) -> int:
    step = network.steps.get(value)  # whole numbers that are looked up have bytes, and none
    return math.prod(network.shapes[value]) * (step.bits if step else 8) // 8


def _best_placement(
    lives: Mapping[str, tuple[int, int]], sizes: Mapping[str, int], bound: int
) -> dict[str, int]:
    """Return the smallest of the placements in some orders: by size, by begin, and by chance."""
    chance = random.Random(0)
    names = sorted(lives, key=lambda one: (-sizes[one], lives[one]))
    orders = [names, sorted(lives, key=lambda one: (lives[one], -sizes[one]))]
    orders += [sorted(names, key=lambda one: -sizes[one] * chance.random()) for _ in range(_TRIES)]
    best, least = dict[str, int](), math.inf
    for order in orders:
        placed = _placement(order, lives, sizes)
        size = max(placed[name] + sizes[name] for name in placed)
        if size < least:
            best, least = placed, size
        if least <= bound:
            break
    return best


def _placement(
    order: Sequence[str], lives: Mapping[str, tuple[int, int]], sizes: Mapping[str, int]
) -> dict[str, int]:
    """Place each value as low as those before it allow."""
    placed: dict[str, int] = {}
    for name in order:
        begin, end = lives[name]
        taken = sorted(
            (placed[other], placed[other] + sizes[other])
            for other in placed
            if lives[other][0] <= end and begin <= lives[other][1]
        )
        offset = 0
        for low, high in taken:
            if offset + sizes[name] <= low:
                break
            offset = max(offset, high)
        placed[name] = offset
    return placed


def _aligned(size: int) -> int:
    return -(-size // _ALIGNED) * _ALIGNED
