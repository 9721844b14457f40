"""Decides which rows of a thread make a step, by the rule in docs/internals/run-folder.md.

In: a thread's rows in order, as columns. Out: `Round`s, one per step. A row is an optimizer's
update, the end of a backward call while no optimizer has stepped, or a wrapper's step that passed
nothing on. So rows first become turns, one for each update. `step_fold` has their times and counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from steptime.record.places import BY_HAND

MIN_BY_HAND = 10
"""Fewer backward calls before the first update are no loop, but a check or a divided first batch.

A loop by hand before optimizers in the same thread comes from a lesson, and is longer.
"""


MIN_LOOP = 4
"""An optimizer that steps as often before another one does has a loop of its own. A critic steps
several times for each step of a generator, which then steps once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One step: the places of its rows, without `end`, and the optimizer of each of its updates."""

    begin: int
    end: int
    optimizers: tuple[int, ...]

    @property
    def num_updates(self) -> int:
        """Return the number of optimizer updates; 0 where the weights are updated by hand."""
        return len(self.optimizers) - self.optimizers.count(BY_HAND)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """The columns of a thread's rows that the rule needs, each in order."""

    optimizers: Sequence[int]
    backwards: Sequence[int]
    inner_steps: Sequence[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Turn:
    """The rows up to the one that ends a turn."""

    begin: int
    end: int
    optimizer: int


def split_rounds(optimizers: Iterable[int]) -> list[tuple[int, int]]:
    """Return rounds by the optimizers alone; a new one begins when an optimizer steps again.

    The guest does the same where it writes blocks. Each round is the places of its rows.
    """
    begins: list[int] = []
    stepped: set[int] = set()
    num_rows = 0
    for place, optimizer in enumerate(optimizers):
        if not begins or optimizer in stepped:
            begins.append(place)
            stepped = set()
        stepped.add(optimizer)
        num_rows = place + 1
    return list(zip(begins, [*begins[1:], num_rows], strict=False))


def fold_rounds(rows: Rows) -> list[Round]:
    """Return the rounds of a thread."""
    kinds = set(rows.optimizers)
    if len(kinds) == 1 and BY_HAND not in kinds and not any(rows.inner_steps):
        only = tuple(rows.optimizers[:1])
        return [
            Round(begin=place, end=place + 1, optimizers=only)
            for place in range(len(rows.optimizers))
        ]
    return _join([*_RowTable(rows).turns()])


class _RowTable:
    """A thread's rows with the facts that are needed often."""

    def __init__(self, rows: Rows) -> None:
        self.rows = rows
        self.wrappers = {
            optimizer
            for optimizer, inner in zip(rows.optimizers, rows.inner_steps, strict=True)
            if inner
        }

    def is_empty(self, place: int) -> bool:
        """Return whether a row is a wrapper's step that passed nothing on."""
        is_wrapper = self.rows.optimizers[place] in self.wrappers
        return is_wrapper and not self.rows.inner_steps[place]

    def turns(self) -> Iterable[_Turn]:
        """Return the turns; rows after the last row that ends a turn belong to none."""
        optimizers, begin = self.rows.optimizers, 0
        for is_by_hand, group in groupby(
            range(len(optimizers)), key=lambda place: optimizers[place] == BY_HAND
        ):
            places = list(group)
            steps = self._steps_by_hand(places) if is_by_hand else set()
            for place in places:
                if place in steps if is_by_hand else not self.is_empty(place):
                    yield _Turn(begin=begin, end=place + 1, optimizer=optimizers[place])
                    begin = place + 1

    def _steps_by_hand(self, places: Sequence[int]) -> set[int]:
        """Return the rows by hand that are steps, since no later update claims them.

        Each backward call is a step; an `autograd.grad` is one only without backward calls.
        """
        own = places[: len(places) - self._num_claimed(places)]
        calls = {place for place in own if self.rows.backwards[place]}
        return calls or set(own)

    def _num_claimed(self, by_hand: Sequence[int]) -> int:
        """Return how many of the last rows by hand belong to the update after them.

        These are as many as the optimizer's later updates have backward calls. They are all if
        there are no later updates, or if too few rows would remain for a loop.
        """
        optimizers, after = self.rows.optimizers, by_hand[-1] + 1
        if after == len(optimizers):
            return 0
        backwards = [
            self.rows.backwards[place]
            for place in range(after, len(optimizers))
            if optimizers[place] == optimizers[after]
        ]
        if len(backwards) == 1:
            return len(by_hand)
        wanted, num_claimed = max(backwards[1:]) - backwards[0], 0
        for place in reversed(by_hand):
            wanted -= self.rows.backwards[place]
            if wanted < 0:
                break
            num_claimed += 1
        return num_claimed if len(by_hand) - num_claimed >= MIN_BY_HAND else len(by_hand)


def _are_loops(turns: Sequence[_Turn]) -> bool:
    """Return whether each optimizer steps several times before another one, always."""
    runs = [(one, len(list(group))) for one, group in groupby(turn.optimizer for turn in turns)]
    whole = runs[:-1]  # the last one may have been cut short
    is_plain = len({one for one, _ in whole}) > 1 and all(one != BY_HAND for one, _ in runs)
    return is_plain and all(num >= MIN_LOOP for _, num in whole)


def _join(turns: Sequence[_Turn]) -> list[Round]:
    """Return rounds of turns, by the optimizers' order; loops in turns have no rounds."""
    if _are_loops(turns):
        return [Round(begin=t.begin, end=t.end, optimizers=(t.optimizer,)) for t in turns]
    last_at = {turn.optimizer: place for place, turn in enumerate(turns)}
    rounds: list[list[_Turn]] = []
    earlier: set[int] = set()  # optimizers of the rounds before the open one
    stepped: set[int] = set()
    for place, turn in enumerate(turns):
        optimizer = turn.optimizer
        is_new = optimizer not in earlier and optimizer not in stepped
        is_over = stepped <= earlier and all(last_at[other] < place for other in stepped)
        is_by_hand = BY_HAND in stepped or optimizer == BY_HAND
        if not rounds or optimizer in stepped or is_by_hand or (is_new and is_over):
            rounds.append([])
            earlier |= stepped
            stepped = set()
        rounds[-1].append(turn)
        stepped.add(optimizer)
    return [
        Round(
            begin=made[0].begin,
            end=made[-1].end,
            optimizers=tuple(turn.optimizer for turn in made),
        )
        for made in rounds
    ]
