"""Where a step ends when several optimizers take turns, known the moment it ends.

`measure/steps/step_fold.py` folds rounds afterwards, when everything is known. Here the levers of
the next step are chosen as soon as the last update of a step is done, so the order of the
optimizers is learned from the updates before: it is the shortest sequence that repeats. A critic
that steps five times for each step of the generator makes a step of six updates, so steps stay
comparable.
"""

from __future__ import annotations

from itertools import groupby

from ...record.places import BY_HAND

MAX_PERIOD = 32
"""In updates. Nobody takes turns in longer sequences, and learning one takes twice its length."""

RECENT = 64
"""An optimizer that has not stepped in this many updates no longer takes a turn."""

PATIENCE = 200
"""After this many updates without any order, each update counts as a step."""


MIN_LOOP = 4
"""An optimizer that steps as often before another one does has a loop of its own, whose updates are
steps; `measure/steps/rounds.py` has the same rule."""


class Cycle:
    """The order in which optimizers take turns; `generation` grows each time that order changes.

    Args:
        tells_loops: whether loops in turns have a step for each update. Levers are compared over
            whole turns instead, because steps of two loops are not alike.
    """

    def __init__(self, *, tells_loops: bool = False) -> None:
        self.tells_loops = tells_loops
        self.generation = 0
        self.reset()

    def reset(self) -> None:
        """Forget everything."""
        self.recent: list[int] = []
        self.num = 0
        self.period = 0  # length of the order; 0 while there is none
        self.anchor = 0  # a step began after this many updates
        self.num_lost = 0

    def add(self, optimizer: int) -> bool:
        """Take an update that has ended; return whether a step ended with it."""
        recent = self.recent
        if recent and recent[-1] == BY_HAND and optimizer != BY_HAND:
            self.reset()  # until an optimizer stepped, backward calls stood for updates
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
        """Return the first count of updates, at least `number`, after which a step begins."""
        return number + (self.anchor - number) % max(1, self.period)

    def _learn(self) -> None:
        recent = self.recent
        if self.tells_loops and self._are_loops():
            self._take(1)
            return
        turning = set(recent[-RECENT:])
        for period in range(1, min(MAX_PERIOD, len(recent) // 2) + 1):
            piece = recent[-period:]
            if piece == recent[-2 * period : -period] and set(piece) == turning:
                self._take(period)
                return
        self.num_lost += 1
        self._take(1 if self.num_lost > PATIENCE else 0)

    def _are_loops(self) -> bool:
        """Return whether each optimizer of late has stepped several times before another one."""
        runs = [(one, sum(1 for _ in group)) for one, group in groupby(self.recent)]
        if runs and self.num > len(self.recent) and runs[0][1] < MIN_LOOP:
            del runs[0]  # its beginning is forgotten
        if runs and runs[-1][1] < MIN_LOOP:
            runs.pop()  # it goes on
        is_plain = BY_HAND not in self.recent and len({one for one, _ in runs}) > 1
        return is_plain and all(num >= MIN_LOOP for _, num in runs)

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
