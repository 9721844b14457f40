"""Where a step ends when several optimizers take turns: told the moment it ends.

`measure/steps/step_fold.py` folds rounds when all is known. Here the next step's levers are to
be chosen as soon as the last update of a step is done, so the order of the optimizers is
learned from what was before: the shortest piece that repeats. A critic that steps five times a
generator's one makes a step of six updates, so that steps can be compared.
"""

from __future__ import annotations

from ...record.places import BY_HAND

MAX_PERIOD = 32
"""Of updates; nobody takes turns in longer pieces, and learning them would take twice as many."""

RECENT = 64
"""An optimizer that has not stepped in so many updates takes no turn any more."""

PATIENCE = 200
"""Updates without any order after which each counts as a step of its own."""


class Cycle:
    """The order in which optimizers take turns.

    `generation` grows each time the order is found to be another one.
    """

    def __init__(self) -> None:
        self.generation = 0
        self.reset()

    def reset(self) -> None:
        """Nothing is known."""
        self.recent: list[int] = []
        self.num = 0
        self.period = 0  # of the order; 0 where there is none
        self.anchor = 0  # a step began after so many updates
        self.num_lost = 0

    def add(self, optimizer: int) -> bool:
        """An update ended; whether a step ended with it."""
        recent = self.recent
        if recent and recent[-1] == BY_HAND and optimizer != BY_HAND:
            self.reset()  # backward calls stood for updates until an optimizer stepped
            recent = self.recent
        goes_on = 0 < self.period <= len(recent) and recent[-self.period] == optimizer
        recent.append(optimizer)
        self.num += 1
        if len(recent) > 2 * RECENT:
            del recent[:RECENT]
        if not goes_on:
            self._learn()
        return self.period > 0 and (self.num - self.anchor) % self.period == 0

    def first_step_at(self, number: int) -> int:
        """The first count of updates, `number` or more, after which a step begins."""
        return number + (self.anchor - number) % max(1, self.period)

    def _learn(self) -> None:
        recent = self.recent
        turning = set(recent[-RECENT:])
        for period in range(1, min(MAX_PERIOD, len(recent) // 2) + 1):
            piece = recent[-period:]
            if piece == recent[-2 * period : -period] and set(piece) == turning:
                self._take(period)
                return
        self.num_lost += 1
        self._take(1 if self.num_lost > PATIENCE else 0)

    def _take(self, period: int) -> None:
        if period and self.num_lost <= PATIENCE:
            self.num_lost = 0
        recent, first = self.recent, len(self.recent) - period
        while first > 0 and recent[first - 1] == recent[first - 1 + period]:
            first -= 1
        anchor = self.num - len(recent) + first
        if period == 1:
            anchor = 0
        if (period, anchor) != (self.period, self.anchor):
            self.period, self.anchor = period, anchor
            self.generation += 1
