"""Which rows of a thread make a step, by the rule in docs/reference/run-folder.md.

In: a thread's rows in order, as columns. Out: `Round`s, a step each. A row is an optimizer's
update, the end of a backward call while no optimizer has stepped, or a wrapper's step that let
nothing through; so rows are gathered to turns, one an update, first. Their times and counts are
left to `steps`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from steptime.record.places import BY_HAND

MIN_BY_HAND = 10
"""Fewer backward calls before the first update are no loop: a check, a first batch in more parts.

A loop by hand that is followed by optimizers in the same thread is a lesson's; it is longer.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One step: the places of its rows, `end` excluded, and the optimizer of each update in it."""

    begin: int
    end: int
    optimizers: tuple[int, ...]

    @property
    def num_updates(self) -> int:
        """Optimizer updates; none where the weights are updated by hand."""
        return len(self.optimizers) - self.optimizers.count(BY_HAND)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """What the rule asks of a thread's rows, each in order."""

    optimizers: Sequence[int]
    backwards: Sequence[int]
    inner_steps: Sequence[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Turn:
    """Rows up to the one that ends a turn."""

    begin: int
    end: int
    optimizer: int


def split_rounds(optimizers: Iterable[int]) -> list[tuple[int, int]]:
    """Rounds by the optimizers alone: a new one begins when one of this is to step again.

    This is what the guest does where it writes blocks. Each is the places of its rows.
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
    """The rounds of a thread."""
    if _is_plain(rows):
        only = tuple(rows.optimizers[:1])
        return [
            Round(begin=place, end=place + 1, optimizers=only)
            for place in range(len(rows.optimizers))
        ]
    return _join([*_RowTable(rows).turns()])


def _is_plain(rows: Rows) -> bool:
    """Whether one optimizer alone stepped, each of whose updates is a step."""
    kinds = set(rows.optimizers)
    return len(kinds) == 1 and BY_HAND not in kinds and not any(rows.inner_steps)


class _RowTable:
    """A thread's rows with what is asked of them again and again."""

    def __init__(self, rows: Rows) -> None:
        self.rows = rows
        self.wrappers = {
            optimizer
            for optimizer, inner in zip(rows.optimizers, rows.inner_steps, strict=True)
            if inner
        }

    def is_empty(self, place: int) -> bool:
        """Whether a wrapper's step let nothing through."""
        is_wrapper = self.rows.optimizers[place] in self.wrappers
        return is_wrapper and not self.rows.inner_steps[place]

    def turns(self) -> Iterable[_Turn]:
        """Rows up to each one that ends a turn; those after the last such belong to none."""
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
        """The rows by hand that are steps: those that no update after them claims.

        Each backward call is one; each `autograd.grad` only where there is no backward call.
        """
        own = places[: len(places) - self._num_claimed(places)]
        calls = {place for place in own if self.rows.backwards[place]}
        return calls or set(own)

    def _num_claimed(self, by_hand: Sequence[int]) -> int:
        """How many of the last rows by hand belong to the update after them.

        As many as the optimizer's later updates have backward calls; all where there are no
        later ones, or where too few would be left for a loop.
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


def _join(turns: Sequence[_Turn]) -> list[Round]:
    """Turns to rounds, by the optimizers' order."""
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
