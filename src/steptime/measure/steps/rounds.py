"""Which rows of a thread make a step, by the rule in docs/reference/run-folder.md.

In: a thread's rows in order. Out: `Round`s, a step each. A row is an optimizer's update, the end
of a backward call while no optimizer has stepped, or a wrapper's step that let nothing through;
so rows are gathered to turns, one an update, first. Their times and counts are left to `steps`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TypeVar

from steptime.measure.stream import FreshUpdate, UpdateRow

T = TypeVar("T", UpdateRow, FreshUpdate)

BY_HAND = -1
"""Stands for the optimizer in a row that a backward call has ended."""

MIN_BY_HAND = 10
"""Fewer backward calls before the first update are no loop: a check, a first batch in more parts.

A loop by hand that is followed by optimizers in the same thread is a lesson's; it is longer.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One step: its rows, and the optimizer of each update in it."""

    rows: tuple[UpdateRow, ...]
    optimizers: tuple[int, ...]

    @property
    def num_updates(self) -> int:
        """Optimizer updates; none where the weights are updated by hand."""
        return sum(optimizer != BY_HAND for optimizer in self.optimizers)


def split_rounds(rows: Iterable[T]) -> list[list[T]]:
    """Rounds by the optimizers alone: a new one begins when one of this is to step again.

    This is what the guest does where it writes blocks.
    """
    rounds: list[list[T]] = []
    stepped: set[int] = set()
    for row in rows:
        if not rounds or row.optimizer in stepped:
            rounds.append([])
            stepped = set()
        rounds[-1].append(row)
        stepped.add(row.optimizer)
    return rounds


def fold_rounds(rows: Sequence[UpdateRow], counts: Sequence[str]) -> list[Round]:
    """The rounds of a thread; `counts` names the counts of the rows."""
    table = _RowTable(rows, counts)
    return _join([*table.turns()])


class _RowTable:
    """A thread's rows with the two counts that the rule asks for."""

    def __init__(self, rows: Sequence[UpdateRow], counts: Sequence[str]) -> None:
        self.rows = rows
        self.places = {name: place for place, name in enumerate(counts)}
        self.wrappers = {row.optimizer for row in rows if self.count(row, "inner_steps")}

    def count(self, row: UpdateRow, name: str) -> int:
        """A count of a row; 0 where an older guest had none of the name."""
        return row.counts[self.places[name]] if name in self.places else 0

    def is_empty(self, row: UpdateRow) -> bool:
        """Whether a wrapper's step let nothing through."""
        return row.optimizer in self.wrappers and not self.count(row, "inner_steps")

    def turns(self) -> Iterable[list[UpdateRow]]:
        """Rows up to each one that ends a turn; those after the last such belong to none."""
        turn: list[UpdateRow] = []
        for is_by_hand, group in groupby(self.rows, key=lambda row: row.optimizer == BY_HAND):
            rows = list(group)
            steps = self._steps_by_hand(rows) if is_by_hand else set()
            for row in rows:
                turn.append(row)
                if row.number in steps if is_by_hand else not self.is_empty(row):
                    yield turn
                    turn = []

    def _steps_by_hand(self, rows: Sequence[UpdateRow]) -> set[int]:
        """Numbers of the rows by hand that are steps: those that no update after them claims.

        Each backward call is one; each `autograd.grad` only where there is no backward call.
        """
        own = rows[: len(rows) - self._num_claimed(rows)]
        calls = {row.number for row in own if self.count(row, "backwards")}
        return calls or {row.number for row in own}

    def _num_claimed(self, by_hand: Sequence[UpdateRow]) -> int:
        """How many of the last rows by hand belong to the update after them.

        As many as the optimizer's later updates have backward calls; all where there are no
        later ones, or where too few would be left for a loop.
        """
        after = [row for row in self.rows if row.number > by_hand[-1].number]
        after = [row for row in after if row.optimizer == after[0].optimizer]
        if not after:
            return 0
        backwards = [self.count(row, "backwards") for row in after]
        if len(after) == 1:
            return len(by_hand)
        wanted, num_claimed = max(backwards[1:]) - backwards[0], 0
        for row in reversed(by_hand):
            wanted -= self.count(row, "backwards")
            if wanted < 0:
                break
            num_claimed += 1
        return num_claimed if len(by_hand) - num_claimed >= MIN_BY_HAND else len(by_hand)


def _join(turns: Sequence[Sequence[UpdateRow]]) -> list[Round]:
    """Turns to rounds, by the optimizers' order."""
    last_at = {turn[-1].optimizer: place for place, turn in enumerate(turns)}
    rounds: list[list[Sequence[UpdateRow]]] = []
    earlier: set[int] = set()  # optimizers of the rounds before the open one
    stepped: set[int] = set()
    for place, turn in enumerate(turns):
        optimizer = turn[-1].optimizer
        is_new = optimizer not in earlier | stepped
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
            rows=tuple(row for turn in turns for row in turn),
            optimizers=tuple(turn[-1].optimizer for turn in turns),
        )
        for turns in rounds
    ]
