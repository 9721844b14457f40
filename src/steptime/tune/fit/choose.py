"""Chooses the cheapest measures that should fit together, by what each keeps of each part.

In: the parts of the peak, options, a limit, and what failed runs taught. Out: a choice. A part that
several measures shrink is shrunk by one after the other, so that nothing is freed twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product

from steptime.levers.base import Preserves
from steptime.tune.fit.held_parts import CONTEXT, FRAGMENTATION, PROCESS, Parts, total_of
from steptime.tune.values.study_values import Applied, State

MARGIN = 0.03
"""Of the limit that an estimate must leave: peaks of the same command differed by up to 2 % from
run to run."""

MORE_MARGIN = 0.04
"""Of the limit, for each run that failed under it: what was wrong is not known in full."""

HARDLY_MORE = 0.02
"""Of the least memory: what estimates cannot distinguish."""

FAILED_ABOVE = 1.02
"""Of the limit: what a run that failed under it is taken to have needed, at least."""

PRICE_OF_CLASS = {
    Preserves.EXACT: 0.0,
    Preserves.NUMERIC: 0.02,
    Preserves.STATISTICAL: 0.1,
    Preserves.NOTHING: 1.0,
}
"""Shares of a step: what gives the same bits is preferred where it takes as long."""

PRICE_OF_LEVER = 0.005
"""A share of a step: of two choices that take as long, the one with fewer levers is preferred."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """A lever with a setting, what it keeps of each part, and what it costs.

    Attributes:
        applied: the lever with its settings.
        keeps: the share of a part that is left; parts that it leaves alone are not named.
        cost_fraction: how much longer a step takes, as a share of it.
        preserves: what it leaves unchanged.
        kind: options of one kind exclude each other.
    """

    applied: Applied
    keeps: Mapping[str, float]
    cost_fraction: float
    preserves: Preserves
    kind: str

    @property
    def price(self) -> float:
        """Return what it costs in all, as a share of a step."""
        return self.cost_fraction + PRICE_OF_CLASS[self.preserves] + PRICE_OF_LEVER


@dataclass(frozen=True, slots=True, kw_only=True)
class FitChoice:
    """Options that are used together, their price, and the peak that should come of it [bytes]."""

    options: tuple[Option, ...]
    price: float
    estimate_bytes: int

    @property
    def state(self) -> State:
        """Return the levers as a state."""
        return tuple(option.applied for option in self.options)


@dataclass(slots=True)
class Lessons:
    """What failed runs taught: by how much less each lever frees, and what is missing besides.

    Attributes:
        shares: of what a lever should free, the share that is believed, by its name.
        unseen_bytes: memory that no part accounts for.
        failed: states that failed.
    """

    shares: dict[str, float] = field(default_factory=dict)
    unseen_bytes: float = 0.0
    failed: list[State] = field(default_factory=list)


def estimate(parts: Parts, options: Sequence[Option], lessons: Lessons) -> int:
    """Return the peak with some options [bytes].

    What the C allocator keeps grows with what is given out, so it shrinks with the tensors.
    """
    kept = dict.fromkeys(parts, 1.0)
    for option in options:
        share = lessons.shares.get(option.applied.name, 1.0)
        for name, keep in option.keeps.items():
            if name in kept:
                kept[name] *= 1 - (1 - keep) * share
    fixed = parts.get(PROCESS, 0.0) + parts.get(CONTEXT, 0.0) + lessons.unseen_bytes
    tensors = [name for name in parts if name not in (PROCESS, FRAGMENTATION, CONTEXT)]
    before = sum(parts[name] for name in tensors)
    after = sum(parts[name] * kept[name] for name in tensors)
    shrunk = after / before if before else 1.0
    loose = parts.get(FRAGMENTATION, 0.0) * kept.get(FRAGMENTATION, 1.0) * shrunk
    return round(after + loose + fixed)


def cheapest(
    parts: Parts, options: Sequence[Option], limit_bytes: int, lessons: Lessons
) -> FitChoice | None:
    """Return the cheapest choice that should fit and did not fail; None where there is none."""
    most = limit_bytes * (1 - MARGIN - MORE_MARGIN * len(lessons.failed))
    fitting = [one for one in choices(parts, options, lessons) if one.estimate_bytes <= most]
    return min(fitting, key=lambda one: (one.price, one.estimate_bytes), default=None)


def smallest(parts: Parts, options: Sequence[Option], lessons: Lessons) -> FitChoice | None:
    """Return the choice with the least memory that did not fail; None where there is none.

    Of those that need hardly more than the least, it is the cheapest one: levers that free next to
    nothing here are a risk without a use.
    """
    found = list(choices(parts, options, lessons))
    least = min((one.estimate_bytes for one in found), default=0)
    near = [one for one in found if one.estimate_bytes <= least * (1 + HARDLY_MORE)]
    return min(near, key=lambda one: (one.price, one.estimate_bytes), default=None)


def choices(parts: Parts, options: Sequence[Option], lessons: Lessons) -> Iterator[FitChoice]:
    """Yield every choice: one option of each kind, or none of it; never none at all."""
    kinds: dict[str, list[Option | None]] = {}
    for option in options:
        kinds.setdefault(option.kind, [None]).append(option)
    for picked in product(*kinds.values()):
        chosen = tuple(one for one in picked if one is not None)
        found = FitChoice(
            options=chosen,
            price=sum(one.price for one in chosen),
            estimate_bytes=estimate(parts, chosen, lessons),
        )
        if chosen and found.state not in lessons.failed:
            yield found


def learn(
    parts: Parts, choice: FitChoice, limit_bytes: int, lessons: Lessons, *, seen_bytes: int = 0
) -> None:
    """Take in that a choice failed under the limit: its levers free less than was believed.

    `seen_bytes`: what it had without the limit; 0 where that is not known.

    All of them are believed less, by as much as makes the estimate what it must have been.
    """
    lessons.failed.append(choice.state)
    needed = max(limit_bytes * FAILED_ABOVE, seen_bytes)
    expected = estimate(parts, choice.options, lessons)
    whole = total_of(parts) + lessons.unseen_bytes
    if expected >= needed:
        return
    if whole <= needed or whole <= expected:
        lessons.unseen_bytes += needed - expected
        return
    share = (whole - needed) / (whole - expected)
    for option in choice.options:
        name = option.applied.name
        lessons.shares[name] = lessons.shares.get(name, 1.0) * share
