"""Decides which updates of a training are counted, so that they can stand for all others.

In: the end of each update with the sizes of its calls. Out: the lines `ops`, `count` and `x`. The
thirteenth update is counted in any case, and two more to see whether they are like the first.
Others follow where inputs have other sizes, where autograd's graph or the trained weights change,
where an optimizer has not been counted, or where updates of equal sizes had other work. Each is
scouted before: an update like it is searched for what may not be counted. `operator_probe.py`
counts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from json import dumps
from typing import TYPE_CHECKING, Any

from ...record import kinds
from ...record.places import BY_HAND
from ..timeline.call_sizes import LARGEST, NODES, TRAINED
from ..timeline.recorder import Recorder
from .completeness import CompletenessProof
from .operators.operator_probe import PROBE_AT, OperatorProbe
from .sizes import count_trained
from .tally import Tally

if TYPE_CHECKING:
    from ..timeline.journal import Journal

MAX_ROUND = 4
"""Where at most this many optimizers take turns, an update of each one is counted at first."""

MAX_PROBES = 8
"""A counted update takes a few times as long as others; with its scouts, eight of them are a
hundredth of 2,000 updates."""

MAX_FOR_SIZES = 6
"""The others are kept for another graph, or for other weights."""

LAST_AT = 2_000
"""After so many updates, only what is beyond all counted sizes, and stays so, is counted."""

MAX_LATE, MIN_LATE = 4, 64
"""Probes after that, and updates beyond the counted sizes that each one takes: a change of the
batch, or of the trained weights, for good."""

CHECKS = (48, 150)
"""The updates that show whether others have the same work, where nothing seems to change."""

GAPS = (4, 8, 24, 100, 400)
"""Updates between two counted ones where only sizes differ: short runs have a few of them, and long
ones are not all counted at their beginning."""

MIN_UNKNOWN = 2
"""More updates with a size that was not counted than without; the last batch of an epoch is one."""

NUM_SCOUTS = 3
"""Where graphs differ in no order, so many updates are searched before one is counted."""

LOOK_EVERY, MIN_LOOK = 16, 4
"""In updates: whether other weights are trained now, sooner where the graph changes. It takes 0.25
µs a tensor."""

MAX_RECENT = 64
"""Graphs of so many updates are remembered, so that an order of 32 is found."""

MAX_WAITING = 8
"""For how many updates the work of a counted one waits for its device to finish."""


class CountPlan:
    """The counted updates of the first thread that steps.

    Rows of backward calls before an optimizer's first step belong to that update, so the counting
    starts again with it.

    Args:
        torch: the module.
        recorder: takes the lines.
        lend: offers the probe to threads that only call models, or takes it back.
        is_once: count one update only: steps are compared with others.
        new_probe: makes a probe.
        shield: returns a function that dynamo leaves alone, with all that it calls.
    """

    def __init__(
        self,
        torch: Any,
        recorder: Recorder,
        lend: Callable[[OperatorProbe | None], None],
        *,
        is_once: bool = False,
        new_probe: Callable[[], OperatorProbe] | None = None,
        shield: Callable[[Callable[..., None]], Callable[..., None]] = lambda act: act,
    ) -> None:
        self.torch = torch
        self.recorder = recorder
        self.lend = lend
        self.completeness: CompletenessProof | None = None
        if new_probe is None:
            self.completeness = CompletenessProof(torch, recorder.fail, sees_all=False)
        self.new_probe = new_probe or (
            lambda: OperatorProbe(torch, recorder.fail, completeness=self.completeness)
        )
        self.probe = self.new_probe()
        self.num_probes = 1
        self.is_over = is_once
        self.recent: list[int] = []  # graphs of the last updates
        self.lines: list[str] = []
        self.round = 1
        self.num_ended = 0
        self.has_stepped = False
        self.schedule: dict[int, bool] = {}  # after which update, and whether only to scout
        self.is_first = True
        self.looked_at = -LOOK_EVERY
        self.last_nodes = -1
        self.is_counting = False
        self.num_counted = 0
        self.num_for_sizes = 0
        self.num_late = self.next_at = 0
        self.num_unknown = 0
        self.known: dict[tuple[int, ...], int] = {}  # counted updates, and their work
        self.bounds: dict[tuple[int, int], list[tuple[int, int]]] = {}  # of counted sizes
        self.has_hidden = False  # updates of equal sizes had other work
        self.graphs: dict[tuple[int, ...], int] = {}
        self.counted_graphs: set[int] = set()
        self.waiting: list[tuple[int, Tally, dict[str, Any]]] = []
        self.idle: list[dict[str, Any]] = []  # updates without an operator
        self.decide = shield(self._decide)
        self.num_granted = 0  # updates that need no thought, if they are like the last one
        self.asker: Callable[[dict[str, Any]], None] | None = None  # takes the lines, too

    def ask(self, journal: Journal, asker: Callable[[dict[str, Any]], None]) -> bool:
        """Count an update of each optimizer because somebody asks; return False if it must wait.

        `is_asked` holds until `asker` has got the last line.
        """
        if self.is_first or self.schedule or self.waiting:
            return False
        self._catch_up(journal)
        number = self.num_ended + 1
        num = max(1, min(self.recorder.num_optimizers, MAX_ROUND))
        if journal.windows is not None and not journal.windows.is_still(number, number + 2 * num):
            return False
        self.schedule = {number + after: after < num for after in range(2 * num)}
        self.probe = self.new_probe()
        self.probe.is_like_others = True  # its storages are not followed
        self.asker = asker
        return True

    @property
    def is_asked(self) -> bool:
        """Whether an asker waits for lines."""
        return self.asker is not None

    def forget_asker(self) -> None:
        """Go on without the asker: the record takes the lines."""
        self.asker = None

    def end_update(self, journal: Journal, optimizer: int, sizes: list[int]) -> None:
        """Take the end of an update: count it if it was probed, and decide about the next one."""
        self.decide(journal, optimizer, sizes)

    def _decide(self, journal: Journal, optimizer: int, sizes: list[int]) -> None:
        try:
            self._catch_up(journal)
            if optimizer != BY_HAND and not self.has_stepped:
                self.has_stepped = True
                self.num_ended, self.looked_at = 0, -LOOK_EVERY
            self.num_ended = number = self.num_ended + 1
            is_other = sizes[NODES] != self.last_nodes and number >= self.looked_at + MIN_LOOK
            if is_other or number >= self.looked_at + LOOK_EVERY:
                self.looked_at, self.last_nodes = number, sizes[NODES]
                sizes = journal.set_trained(count_trained(self.torch, self._optimizers()))
            if self.is_counting:
                self._take(journal, optimizer, sizes)
            if self.waiting:
                self._write_waiting(journal, number)
            if self.is_first:
                self._plan_first(number)
            elif not self.is_over:
                self._plan_next(journal, number, (optimizer, *sizes[:LARGEST]))
            self._lay_out(journal, number)
            self._rest(journal, number, (optimizer, *sizes[:LARGEST]))
            if self.asker is not None and not (self.schedule or self.waiting):
                self.asker = None
        except BaseException:
            self.recorder.fail("count")
            self.is_over, self.is_first, self.is_counting = True, False, False
            journal.probe = None
            self._tell({"k": kinds.COUNT, "n": self.num_ended, "missing": "failed"})
            self.asker = None

    def _rest(self, journal: Journal, number: int, key: tuple[int, ...]) -> None:
        """Grant updates like this one a rest: our code runs between kernels, with cold caches."""
        if self.schedule or self.is_first or self.waiting or self.has_hidden:
            return
        if self.is_over or key in self.known:
            look = LOOK_EVERY if key[1 + NODES] == self.last_nodes else MIN_LOOK
            ends = (self.looked_at + look, *CHECKS, LAST_AT + 1)
            self.num_granted = min(end for end in ends if end > number) - number - 1
            journal.num_at_rest = self.num_granted

    def _catch_up(self, journal: Journal) -> None:
        """Take the updates that ended at rest: each was like the one before them."""
        num = self.num_granted - journal.num_at_rest
        self.num_granted = journal.num_at_rest = 0
        if num and not self.is_over and self.num_ended < LAST_AT:
            self.recent += self.recent[-1:] * min(num, MAX_RECENT)
            del self.recent[:-MAX_RECENT]
            if self.num_probes < MAX_PROBES:
                self.num_unknown = max(0, self.num_unknown - num)
        self.num_ended += num

    def _optimizers(self) -> list[Any]:
        return [reference() for _, reference in self.recorder.optimizers.values()]

    # -- which updates

    def _plan_first(self, number: int) -> None:
        if number <= max(1, PROBE_AT - MAX_ROUND):
            self.round = max(1, min(self.recorder.num_optimizers, MAX_ROUND))
            first, last = PROBE_AT - self.round, PROBE_AT + self.round
            self.schedule = {at: at < PROBE_AT for at in range(first, last)}

    def _plan_next(self, journal: Journal, number: int, key: tuple[int, ...]) -> None:
        """Plan to count an update like the one that has ended, if there is a reason."""
        if number > LAST_AT:
            self._plan_late(journal, number, key)
            return
        graph = self.graphs.setdefault((key[0], key[1 + NODES], key[1 + TRAINED]), len(self.graphs))
        self.recent.append(graph)
        del self.recent[:-MAX_RECENT]
        if self.schedule or self.num_probes >= MAX_PROBES:
            return
        if key in self.known:
            self.num_unknown = max(0, self.num_unknown - 1)
            if self._needs_check(number) and self._begin(journal, number, 1):
                is_first = self.num_probes == 2  # beside the first of all, it shows what grows
                self.probe.is_like_others = not (is_first or self.has_hidden)
                self.next_at = number + GAPS[min(self.num_probes, len(GAPS)) - 1]
            return
        self.num_unknown += 1
        period = period_of(self.recent)
        if period and graph not in self.counted_graphs:
            self._begin(journal, number, period)
        elif self._is_due(number) and self._begin(journal, number, period):
            self.next_at = number + GAPS[min(self.num_for_sizes, len(GAPS) - 1)]
            self.num_for_sizes += 1
            self.num_unknown = 0

    def _needs_check(self, number: int) -> bool:
        """Return whether an update like a counted one is counted, to see if its work is the same.

        Where it was not, the others are counted for what such updates have on average.
        """
        if self.has_hidden:
            return number >= self.next_at
        return number in CHECKS[self.num_probes - 1 : self.num_probes]

    def _plan_late(self, journal: Journal, number: int, key: tuple[int, ...]) -> None:
        """Plan to count what is beyond all counted sizes, once it has been so for a while."""
        if number == LAST_AT + 1:
            self.num_unknown = 0
        if self.schedule or key in self.known:
            return
        bounds = self.bounds.get((key[0], key[1 + TRAINED]))
        is_beyond = bounds is None or any(
            not low <= size <= high for size, (low, high) in zip(key[1:], bounds)
        )
        self.num_unknown = self.num_unknown + 1 if is_beyond else max(0, self.num_unknown - 1)
        if self.num_unknown >= MIN_LATE and self._begin(journal, number, 1):
            self.num_unknown = 0
            self.num_late += 1
            self.is_over = self.num_late >= MAX_LATE

    def _is_due(self, number: int) -> bool:
        """Return whether sizes that were not counted are a reason to count again."""
        is_allowed = number >= self.next_at and self.num_for_sizes < MAX_FOR_SIZES
        return is_allowed and self.num_unknown >= MIN_UNKNOWN

    def _begin(self, journal: Journal, number: int, period: int) -> bool:
        """Plan to scout and to count; return whether nothing else is in the way."""
        if period:
            schedule = {number + period - 1: True, number + 2 * period - 1: False}
        else:
            scouts = {number + after: True for after in range(NUM_SCOUTS)}
            schedule = scouts | {number + NUM_SCOUTS: False}
        windows = journal.windows
        if windows is not None and not windows.is_free(number, max(schedule) + 1):
            return False
        if journal.asked is not None:
            return False  # another probe may be at work
        self.schedule = schedule
        self.probe = self.new_probe()
        self.num_probes += 1
        return True

    def is_clear(self, number: int, last: int) -> bool:
        """Return whether none of these updates is scouted or counted."""
        if self.is_first and number < PROBE_AT:
            return last < PROBE_AT - self.round
        return not any(number <= at <= last for at in self.schedule)

    def _lay_out(self, journal: Journal, number: int) -> None:
        """Let the next update be scouted or counted, or leave it alone."""
        if not self.schedule:
            return
        is_scouting = self.schedule.get(number)
        self.is_counting = is_scouting is False
        if is_scouting is not None:
            self.probe.begin(is_scouting=is_scouting)
        if self.is_counting and self.completeness is not None:
            self.completeness.begin_update(self._optimizers())
        journal.probe = None if is_scouting is None else self.probe
        self.lend(journal.probe if self.is_counting else None)
        if number > max(self.schedule):
            self._finish(number)

    def _finish(self, number: int) -> None:
        """Take the end of what was planned; an idle update counts only beside one with work."""
        self.schedule = {}
        idle, self.idle = self.idle, []
        for facts in idle if self.known else ():
            self._keep(number, Tally(self.torch), facts)
        if self.is_first:
            self.is_first = False
            self.next_at = number
            self.lines += filter(None, [self.probe.shapes.line(number)])
            self.is_over |= not self.known
            if idle and not self.known:
                facts = {"k": kinds.COUNT, "n": number, "updates": 0, "missing": "no_backward_seen"}
                self.lines.append(dumps(facts) + "\n")

    # -- what came of them

    def _take(self, journal: Journal, optimizer: int, sizes: list[int]) -> None:
        """Take the work of the update that has ended."""
        number, probe = self.num_ended, self.probe
        if self.completeness is not None:
            self.completeness.end_update()
        if self.is_first and not probe.is_done:
            self.lines.append(probe.line(number))
        facts: dict[str, Any] = {"k": kinds.COUNT, "n": number, "updates": 1}
        tally, missing = probe.take()
        if missing is not None:
            self._tell(facts | {"missing": missing})
            return
        facts |= {"optimizer": optimizer, "sizes": sizes, "has_guests": probe.has_guests}
        if probe.storages is not None:
            facts["peak"] = probe.storages.peak()
        if tally is None:  # another optimizer's turn had all the work, if any is seen
            self.idle.append(facts)
        else:
            self._keep(number, tally, facts)

    def _keep(self, number: int, tally: Tally, facts: dict[str, Any]) -> None:
        """Keep the work of an update until it can be written."""
        self.num_counted += 1
        key = (facts["optimizer"], *facts["sizes"][:LARGEST])
        work = sum(tally.passes.values())
        self.has_hidden |= self.known.setdefault(key, work) != work
        sizes = key[1 : 1 + TRAINED]
        bounds = self.bounds.get((key[0], key[1 + TRAINED])) or [(one, one) for one in sizes]
        self.bounds[key[0], key[1 + TRAINED]] = [
            (min(low, one), max(high, one)) for one, (low, high) in zip(sizes, bounds)
        ]
        graph = key[0], key[1 + NODES], key[1 + TRAINED]
        self.counted_graphs.add(self.graphs.setdefault(graph, len(self.graphs)))
        self.waiting.append((number, tally, facts))

    def _write_waiting(self, journal: Journal, number: int, *, is_last: bool = False) -> None:
        """Write the work of counted updates whose device has finished, or will not in time."""
        left = []
        for counted_at, tally, facts in self.waiting:
            is_late = is_last or number >= counted_at + MAX_WAITING
            if not (is_late or tally.times is None or tally.times.have_passed()):
                left.append((counted_at, tally, facts))
                continue
            if number > counted_at and not is_last:
                journal.disturb()
            self._tell(facts | self.probe.table_of(tally))
        self.waiting = left

    def _tell(self, line: dict[str, Any]) -> None:
        """Write a line, and hand it to whoever asks."""
        self.lines.append(dumps(line) + "\n")
        if self.asker is not None:
            self.asker(line)

    @property
    def is_idle(self) -> bool:
        """Whether nothing is planned or waits to be written."""
        return not (self.is_first or self.schedule or self.waiting or self.asker)

    def skip(self, journal: Journal, num: int) -> None:
        """Pass over updates that nothing is known of."""
        self._catch_up(journal)
        self.num_ended += num

    def pop_lines(self) -> list[str]:
        """Return the lines made since the last call."""
        lines, self.lines = self.lines, []
        return lines

    def pop_last_lines(self, journal: Journal) -> list[str]:
        """Return the last lines: the process ends."""
        self._catch_up(journal)
        self._write_waiting(journal, self.num_ended, is_last=True)
        if self.is_first and not self.probe.is_done:
            self.lines.append(self.probe.line(self.num_ended))
        if self.is_first and not self.num_counted:
            missing = self.probe.missing or "too_few_updates"
            facts = {"k": kinds.COUNT, "n": self.num_ended, "updates": 0, "missing": missing}
            self.lines.append(dumps(facts) + "\n")
        return self.pop_lines()


def period_of(graphs: Sequence[int]) -> int:
    """Return after how many updates the last graph came before, in the same order; 0 if never."""
    return next(
        (
            period
            for period in range(1, len(graphs) // 2 + 1)
            if graphs[-period:] == graphs[-2 * period : -period]
        ),
        0,
    )


class CountWatcher:
    """Gives the recorder, when it writes, the lines on counted updates."""

    place = "count"

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder

    def reset(self) -> None:
        """Do nothing: what was planned belongs to a journal, which starts again."""

    def poll(self, bucket: int, *, is_last: bool) -> str:
        """Return the new lines."""
        text = ""
        for journal in list(self.recorder.journals):
            if journal.plan is not None:
                lines = (
                    journal.plan.pop_last_lines(journal) if is_last else journal.plan.pop_lines()
                )
                text += "".join(lines)
        return text
