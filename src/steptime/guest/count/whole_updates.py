"""Counts whole updates, in a process that exists for nothing else.

Nothing has to stay as it is there, so one mode is on from update to update, whatever the script
calls: functions without a module, models without gradients, gradients of gradients, strided nested
tensors. What belongs to no step (evaluations, loading, the optimizers' own arithmetic) is left
out, as it is in a run. Counting ends when what was counted repeats.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from json import dumps
from time import monotonic, perf_counter_ns
from typing import TYPE_CHECKING, Any

from ...record import kinds
from ...record.buckets import (
    BACKWARD,
    COMMUNICATION,
    FORWARD,
    FORWARD_AND_LOSS,
    LOSS,
    OTHER,
    ROLLOUT,
    SYNC,
)
from ...record.places import BY_HAND
from ..timeline.call_sizes import PLAIN
from ..timeline.recorder import Recorder
from .completeness import CompletenessProof
from .counting_mode import leave_mode, make_mode
from .sizes import count_trained
from .tally import Tally

if TYPE_CHECKING:
    from ..timeline.journal import Journal
    from .operators.product_book import ProductBook

COUNT_AT = 6
"""The updates before are left alone: states and caches are made in them."""

PRODUCTS_AT = 1
"""The sizes of products are those of any update, once an optimizer has stepped: what came before
its first step may have looked like an update."""

MIN_UPDATES = 4
"""Fewer equal updates may be a chance."""

MAX_UPDATES = 40
"""A longer period is not waited for."""

MAX_S = 60.0
"""Counting takes no longer, except for the update in which it is."""

FOREIGN = "child_subclass"
"""Tensors took part that run their operators themselves; a line with this word makes the others
void."""

STEP = frozenset((OTHER, FORWARD, LOSS, BACKWARD, FORWARD_AND_LOSS, ROLLOUT, SYNC, COMMUNICATION))
"""What belongs to a step and is counted: the optimizers' own arithmetic is not, as in a run."""


class WholeUpdates:
    """The updates of the first thread that steps, counted one after the other.

    Args:
        torch: the module.
        recorder: takes the lines.
        clock: [s].
        products: keeps the sizes of products; then one round of updates is enough.
    """

    def __init__(
        self,
        torch: Any,
        recorder: Recorder,
        clock: Callable[[], float] = monotonic,
        *,
        products: ProductBook | None = None,
    ) -> None:
        self.torch = torch
        self.products = products

        self.recorder = recorder
        self.clock = clock
        self.pid = os.getpid()
        self.num_ended = 0
        self.has_stepped = False
        self.mode: Any = None
        self.tally: Tally | None = None
        self.completeness = CompletenessProof(torch, recorder.fail)
        self.began_s = 0.0
        self.foreign: set[str] = set()  # met in other threads
        self.has_plain = False  # a model was called without gradients in an update not counted
        self.seen: list[tuple[int, int, int]] = []
        self.is_over = False
        self.lines: list[str] = []

    def end_update(self, journal: Journal, optimizer: int, sizes: list[int]) -> None:
        """Take the end of an update: write its work, and go on with the next one."""
        try:
            if optimizer != BY_HAND and not self.has_stepped:
                self.has_stepped = True
                self.num_ended = 0
            self.num_ended += 1
            if self.is_over:
                return
            optimizers = [reference() for _, reference in self.recorder.optimizers.values()]
            trained = count_trained(self.torch, optimizers)
            sizes = journal.set_trained(trained)
            if self.mode is not None:
                self._take(optimizer, sizes)
                if self.foreign or self.mode.foreign:
                    self._abstain()
                    return
            elif self.num_ended < self._count_at():
                self.has_plain |= sizes[PLAIN] > 0
                return
            if self._is_enough():
                self._end("done")
            else:
                self._begin(journal, optimizers)
        except BaseException:
            self.recorder.fail("count")
            self._end("failed")

    def _count_at(self) -> int:
        """Return the number of updates that are left alone before."""
        is_soon = self.products is not None and self.has_stepped
        return PRODUCTS_AT if is_soon else COUNT_AT

    def _begin(self, journal: Journal, optimizers: Sequence[Any]) -> None:
        """Count the update that begins here."""
        self.completeness.begin_update(optimizers)
        self.tally = Tally(
            self.torch,
            completeness=self.completeness,
            products=self.products,
            fail=self.recorder.fail,
        )
        if self.products is not None:
            self.products.begin_update()
        self.tally.follow_modules()
        if self.mode is not None:
            return
        self.began_s = self.clock()
        self.mode = self.new_mode(journal)
        self.mode.__enter__()

    def new_mode(self, journal: Journal) -> Any:
        """Return a mode for the thread of a journal."""

        def add(func: Any, args: Any, kwargs: Any, result: Any, ns: int) -> Any:
            tally = self.tally
            if tally is None or journal.top not in STEP or os.getpid() != self.pid:
                return None
            try:
                self._see_product(tally, func, args, kwargs, result, ns)
                return tally.add(func, args, kwargs, result, ns)
            except BaseException:
                self.recorder.fail("count")
                return None

        return make_mode(self.torch, add, perf_counter_ns, decomposes=True)

    def _see_product(self, tally: Tally, *operator: Any) -> None:
        """Keep the sizes of an operator, before the tally moves on."""
        if self.products is None:
            return
        try:
            self.products.add(tally, *operator)
        except BaseException:
            self.recorder.fail("products")

    def _take(self, optimizer: int, sizes: list[int]) -> None:
        """Write the work of the update that has ended."""
        tally, self.tally = self.tally, None
        if tally is None:
            return
        tally.unfollow_modules()
        self.completeness.end_update()
        facts = {"k": kinds.COUNT, "n": self.num_ended, "updates": 1, "is_whole": True}
        facts |= {"optimizer": optimizer, "sizes": sizes} | tally.table(is_executed=True)
        self.lines.append(dumps(facts) + "\n")
        self.seen.append((optimizer, sum(tally.passes.values()), sizes[PLAIN]))

    def _abstain(self) -> None:
        """Count no more: what some tensors computed was not seen."""
        line = {"k": kinds.COUNT, "n": self.num_ended, "missing": FOREIGN}
        self.lines.append(dumps(line) + "\n")
        self._end("done")

    def _is_enough(self) -> bool:
        """Return whether what was counted repeats, or has lasted long enough."""
        num = len(self.seen)
        if not num:
            return False
        if num >= MAX_UPDATES or self.clock() - self.began_s > MAX_S:
            return True
        is_whole = len({one for one, _, _ in self.seen}) >= self.recorder.num_optimizers
        if self.products is not None:
            return is_whole
        has_plain = not self.has_plain or any(plain for _, _, plain in self.seen)
        return is_whole and has_plain and repeats(self.seen)

    def _end(self, why: str) -> None:
        """Leave the mode, and write that nothing more is counted."""
        self.is_over = True
        mode, self.mode = self.mode, None
        if mode is not None:
            leave_mode(self.torch, mode)
        if self.products is not None:
            self.lines.append(self.products.line(len(self.seen)))
        line = {"k": kinds.COUNTED, "n": self.num_ended, "num": len(self.seen), "why": why}
        self.lines.append(dumps(line) + "\n")

    def is_clear(self, number: int, last: int) -> bool:
        """Return whether none of these updates is counted: nothing else is done here."""
        return True

    is_idle = False

    def skip(self, journal: Journal, num: int) -> None:
        """Do nothing: this process counts, and its watch never rests."""

    def pop_lines(self) -> list[str]:
        """Return the lines made since the last call."""
        lines, self.lines = self.lines, []
        return lines

    def pop_last_lines(self, journal: Journal) -> list[str]:
        """Return the last lines: the process ends."""
        return self.pop_lines()


def hook_threads(torch: Any, journal_now: Callable[[], Journal], plan_now: PlanNow) -> None:
    """Count in threads, too, if they make no updates of their own: each gets a mode at its start.

    Args:
        torch: the module.
        journal_now: the calling thread's journal.
        plan_now: what is counted, once it is known.
    """
    original = threading.Thread._bootstrap_inner  # type: ignore[attr-defined]

    def _bootstrap_inner(self: Any) -> None:
        journal = journal_now()

        def add(func: Any, args: Any, kwargs: Any, result: Any, ns: int) -> Any:
            plan = plan_now()
            tally = None if plan is None else plan.tally
            if tally is None or journal.num_updates or journal.top not in STEP:
                return None
            with suppress(Exception):
                return tally.add(func, args, kwargs, result, ns)
            return None

        with make_mode(torch, add, perf_counter_ns, decomposes=True) as mode:
            original(self)
        if (plan := plan_now()) is not None:
            plan.foreign |= mode.foreign

    threading.Thread._bootstrap_inner = _bootstrap_inner  # type: ignore[attr-defined]


PlanNow = Callable[[], "WholeUpdates | None"]


def repeats(seen: Sequence[object]) -> bool:
    """Return whether what was seen is one sequence again and again, twice at least."""
    num = len(seen)
    return num >= MIN_UPDATES and any(
        all(seen[at] == seen[at + period] for at in range(num - period))
        for period in range(1, num // 2 + 1)
    )
