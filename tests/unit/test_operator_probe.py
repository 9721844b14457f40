"""What counted operators say, and which updates are counted; how needs torch (end_to_end)."""

from __future__ import annotations

import json
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from steptime.guest.count.count_plan import (
    CHECKS,
    LAST_AT,
    LOOK_EVERY,
    MAX_FOR_SIZES,
    MAX_LATE,
    MAX_PROBES,
    MAX_WAITING,
    MIN_LATE,
    CountPlan,
)
from steptime.guest.count.operators.operator_probe import PROBE_AT, OperatorProbe
from steptime.guest.count.tally import TINY_NS
from steptime.guest.sites.site_windows import WATCHED_UPDATES, WINDOWS, SiteWindows
from steptime.guest.timeline.call_sizes import NODES, TRAINED


class Frames:
    """Nothing is walked."""

    loops: dict[Any, Any] = {}  # noqa: RUF012

    def stack(self, frame: object) -> tuple[()]:
        return ()


TORCH = SimpleNamespace(_C=SimpleNamespace(DisableTorchFunction=nullcontext))


def new_probe() -> OperatorProbe:
    return OperatorProbe(TORCH, fail=lambda place: None)


class Weight:
    """A weight of ten elements."""

    def __init__(self) -> None:
        self.requires_grad = True

    def numel(self) -> int:
        return 10


class Optimizer:
    """An optimizer with two weights."""

    def __init__(self) -> None:
        self.param_groups = [{"params": [Weight(), Weight()]}]


class Journal:
    """What windows and plan ask of a journal."""

    def __init__(self, num_optimizers: int = 1) -> None:
        self.is_direct = self.is_attentive = False
        self.probe: OperatorProbe | None = None
        self.plan: CountPlan | None = None
        self.windows: SiteWindows | None = None
        self.asked: Any = None
        self.num_disturbed = self.num_at_rest = 0
        self.last_optimizer = -1
        self.sizes = [0] * 7
        self.optimizers = [Optimizer() for _ in range(num_optimizers)]
        self.failures: list[str] = []
        known = {at: (at, lambda at=at: self.optimizers[at]) for at in range(num_optimizers)}
        self.recorder = SimpleNamespace(
            num_optimizers=num_optimizers, optimizers=known, fail=self.failures.append
        )

    def disturb(self) -> None:
        self.num_disturbed += 1

    def set_trained(self, trained: int) -> list[int]:
        if trained != self.sizes[TRAINED]:
            self.sizes = [*self.sizes[:TRAINED], trained, *self.sizes[TRAINED + 1 :]]
        return self.sizes


class Loop:
    """A training whose updates are ended one by one; each probed one is counted."""

    def __init__(
        self, journal: Journal | None = None, *, times: Any = None, work: Any = lambda number: 7
    ) -> None:
        self.journal = journal or Journal()
        self.work = work
        self.lent: list[Any] = []
        self.times = times
        self.plan = CountPlan(
            TORCH,
            self.journal.recorder,  # type: ignore[arg-type]
            self.lent.append,
            new_probe=new_probe,
        )
        self.number = 0
        self.scouted: list[int] = []
        self.counted: list[int] = []
        self.missing: str | None = None

    def run(self, num: int, *, sizes: Any = (8, 8, 8, 3, 0), optimizer: int = 0) -> None:
        """End so many updates; `sizes` may be a function of the update's number."""
        for _ in range(num):
            self.number += 1
            probe = self.journal.probe
            if probe is not None and probe.is_scouting:
                self.scouted.append(self.number)
            elif probe is not None:
                self.counted.append(self.number)
                probe.missing = self.missing
                probe.durations.append(5)
                work = {"forward": self.work(self.number)}
                probe.tally = SimpleNamespace(  # type: ignore[assignment]
                    num=1, times=self.times, passes=work, table=lambda work=work, **_: work
                )
            now = list(sizes(self.number) if callable(sizes) else sizes)
            self.end_update(now, optimizer)
        assert self.journal.failures == []

    def end_update(self, now: list[int], optimizer: int) -> None:
        """What the journal does: alike updates share their sizes, and the plan's rest."""
        journal = self.journal
        is_alike = now == journal.sizes[:5] and optimizer == journal.last_optimizer
        journal.last_optimizer = optimizer
        if now != journal.sizes[:5]:
            journal.sizes = [*now, *journal.sizes[5:]]
        if is_alike and journal.num_at_rest:
            journal.num_at_rest -= 1
        else:
            self.plan.end_update(journal, optimizer, journal.sizes)  # type: ignore[arg-type]

    def told(self, *, is_last: bool = False) -> list[dict[str, Any]]:
        lines = self.plan.pop_last_lines(self.journal) if is_last else self.plan.pop_lines()  # type: ignore[arg-type]
        return [json.loads(line) for line in lines]


@pytest.fixture
def windows() -> SiteWindows:
    return SiteWindows(Frames(), clock=lambda: 0)  # type: ignore[arg-type]


def test_operators_are_sorted_by_what_they_take() -> None:
    probe = new_probe()
    probe.durations += [TINY_NS - 1, 5_000, TINY_NS, 70_000]

    assert json.loads(probe.line(13).splitlines()[0]) == {
        "k": "ops",
        "n": 13,
        "num": 4,
        "num_tiny": 2,
        "tiny_ns": TINY_NS - 1 + 5_000,
        "large_ns": TINY_NS + 70_000,
    }


def test_without_an_operator_there_were_too_few_updates() -> None:
    assert json.loads(new_probe().line(3)) == {"k": "ops", "n": 3, "missing": "too_few_updates"}


def test_a_reason_outweighs_what_was_counted_until_then() -> None:
    probe = new_probe()
    probe.durations.append(5)
    probe.missing = "subclass"

    assert json.loads(probe.line(13))["missing"] == "subclass"


def end_updates(
    windows: SiteWindows, journal: Any, num: int, *, is_by_hand: bool = False
) -> list[bool]:
    """Whether each next update is one of a window."""
    found = []
    for _ in range(num):
        windows.end_update(journal, is_by_hand=is_by_hand)
        found.append(journal.is_attentive)
    return found


def test_windows_are_the_updates_that_the_reference_names(windows: SiteWindows) -> None:
    walked = end_updates(windows, Journal(), 40)
    inside = [number for number, is_walked in enumerate(walked, start=1) if is_walked]

    assert WINDOWS == ((1, 3), (24, 27))
    assert inside == [1, 2, 3, 24, 25, 26, 27]
    assert not windows.is_over  # a loop with an optimizer of its own may begin

    end_updates(windows, Journal(), WATCHED_UPDATES)
    assert windows.is_over


def test_rows_of_backward_calls_do_not_count_once_an_optimizer_steps(windows: SiteWindows) -> None:
    journal = Journal()
    end_updates(windows, journal, 3, is_by_hand=True)
    walked = end_updates(windows, journal, 6)

    assert walked == [True, True, True, False, False, False]


def test_a_journal_that_is_direct_stays_attentive(windows: SiteWindows) -> None:
    journal = Journal()
    journal.is_direct = True

    assert all(end_updates(windows, journal, 40))


# -- which updates are counted


def test_the_first_counted_update_has_a_scout_before_it() -> None:
    loop = Loop()
    loop.run(30)

    assert (loop.scouted, loop.counted) == ([PROBE_AT], [PROBE_AT + 1])
    assert [(line["k"], line["n"]) for line in loop.told()] == [("ops", 13), ("count", 13)]


def test_where_two_optimizers_take_turns_an_update_of_each_is_counted() -> None:
    loop = Loop(Journal(num_optimizers=2))
    for _ in range(20):
        loop.run(1, optimizer=0)
        loop.run(1, optimizer=1)

    assert loop.scouted == [PROBE_AT - 1, PROBE_AT]
    assert loop.counted == [PROBE_AT + 1, PROBE_AT + 2]
    told = loop.told()
    assert [(line["k"], line["n"]) for line in told] == [("ops", 13), ("count", 13), ("count", 14)]
    assert [line["optimizer"] for line in told[1:]] == [0, 1]


def test_an_optimizer_with_rare_turns_is_counted_too() -> None:
    loop = Loop(Journal(num_optimizers=2))
    for _ in range(20):
        loop.run(5, optimizer=0)
        loop.run(1, optimizer=1)

    assert loop.counted[2] % 6 == 0
    assert loop.scouted[2] == loop.counted[2] - 6


def test_where_nothing_changes_two_more_updates_are_counted_to_see_whether_it_is_so() -> None:
    loop = Loop()
    loop.run(LAST_AT + 500)

    assert loop.counted == [PROBE_AT + 1, *(number + 2 for number in CHECKS)]


def test_where_equal_sizes_had_other_work_more_updates_are_counted() -> None:
    loop = Loop(work=lambda number: number)
    loop.run(LAST_AT)

    assert len(loop.counted) == MAX_PROBES
    assert loop.counted[:2] == [PROBE_AT + 1, CHECKS[0] + 2]


def test_after_many_updates_only_what_is_beyond_all_counted_sizes_is_counted() -> None:
    loop = Loop()
    loop.run(LAST_AT, sizes=lambda number: (10 + number % 90, 50, 50, 3, 0))
    early = list(loop.counted)
    loop.run(LAST_AT, sizes=lambda number: (10 + number % 90, 50, 50, 3, 0))
    assert loop.counted == early

    loop.run(MIN_LATE // 2, sizes=(500, 50, 50, 3, 0))
    loop.run(100, sizes=(50, 50, 50, 3, 0))
    assert loop.counted == early

    loop.run(3 * MIN_LATE, sizes=(500, 50, 50, 3, 0))
    assert len(loop.counted) == len(early) + 1
    for rows in range(600, 2_000, 100):
        loop.run(3 * MIN_LATE, sizes=(rows, 50, 50, 3, 0))
    assert len(loop.counted) == len(early) + MAX_LATE


def test_changing_sizes_are_counted_at_growing_distances_and_not_for_ever() -> None:
    loop = Loop()
    loop.run(LAST_AT, sizes=lambda number: (number, number, number, 3, 0))

    assert len(loop.counted) == 1 + MAX_FOR_SIZES
    gaps = [after - before for before, after in zip(loop.counted, loop.counted[1:], strict=False)]
    assert gaps == sorted(gaps)
    assert all(at - 1 in loop.scouted for at in loop.counted)


def test_the_last_batch_of_an_epoch_is_no_reason_to_count() -> None:
    loop = Loop()
    loop.run(400, sizes=lambda number: (8 if number % 10 else 3, 8, 8, 3, 0))

    assert loop.counted == [PROBE_AT + 1, *(number + 2 for number in CHECKS)]


def test_a_change_in_the_middle_is_counted_soon() -> None:
    loop = Loop()
    loop.run(1_000)
    loop.run(20, sizes=(16, 16, 16, 3, 0))

    assert loop.counted[3:] == [1_004]


def test_another_graph_is_counted_even_after_all_sizes() -> None:
    loop = Loop()
    loop.run(LAST_AT - 100, sizes=lambda number: (number, number, number, 3, 0))
    loop.run(50, sizes=(8, 8, 8, 5, 0))

    assert len(loop.counted) == MAX_PROBES
    assert LAST_AT - 100 < loop.counted[-1] < LAST_AT - 90


def test_other_trained_weights_are_seen_and_counted() -> None:
    loop = Loop()
    loop.run(500)
    loop.journal.optimizers[0].param_groups[0]["params"][0].requires_grad = False
    loop.run(2 * LOOK_EVERY)

    assert 500 < loop.counted[-1] < 500 + 2 * LOOK_EVERY
    assert [line["sizes"][TRAINED] for line in loop.told() if line["k"] == "count"] == [
        20,
        20,
        20,
        10,
    ]


def test_another_graph_makes_the_plan_look_at_the_weights_at_once() -> None:
    loop = Loop()
    loop.run(505)
    loop.journal.optimizers[0].param_groups[0]["params"][0].requires_grad = False
    loop.run(1, sizes=(8, 8, 8, 4, 0))

    assert loop.journal.sizes[TRAINED] == 10
    assert NODES == 3


def test_nothing_more_is_counted_where_the_first_update_cannot_be() -> None:
    loop = Loop()
    loop.missing = "inexact"
    loop.run(500, sizes=lambda number: (number, number, number, 3, 0))

    assert loop.counted == [PROBE_AT + 1]
    assert [line["missing"] for line in loop.told()] == ["inexact", "inexact"]


def test_the_probe_is_lent_while_an_update_is_counted() -> None:
    loop = Loop()
    loop.run(PROBE_AT)
    assert loop.lent[-1] is loop.plan.probe
    loop.run(1)
    assert loop.lent[-1] is None


class Times:
    """Device times that are there from some question on."""

    def __init__(self, after: int) -> None:
        self.num_asked = -after

    def have_passed(self) -> bool:
        self.num_asked += 1
        return self.num_asked > 0


@pytest.mark.parametrize(
    ("after", "told_in"), [(0, PROBE_AT + 1), (3, PROBE_AT + 4), (100, PROBE_AT + 1 + MAX_WAITING)]
)
def test_the_count_waits_for_the_device_but_not_for_ever(after: int, told_in: int) -> None:
    loop, told = Loop(times=Times(after)), {}
    for number in range(1, 30):
        loop.run(1)
        for line in loop.told():
            told[line["k"]] = (number, line["n"])

    assert told["count"] == (told_in, PROBE_AT + 1)


def test_a_training_that_ends_before_its_device_tells_what_is_known() -> None:
    loop = Loop(times=Times(100))
    loop.run(PROBE_AT + 2)

    (line,) = [one for one in loop.told(is_last=True) if one["k"] == "count"]
    assert (line["updates"], line["forward"]) == (1, 7)


def test_a_training_that_ends_early_says_so() -> None:
    loop = Loop()
    loop.run(5)

    assert [line["missing"] for line in loop.told(is_last=True)] == ["too_few_updates"] * 2


# -- when somebody asks


def test_an_asker_gets_the_next_update_after_one_that_is_scouted() -> None:
    loop = Loop()
    loop.run(30)
    told: list[dict[str, Any]] = []
    loop.counted.clear()
    loop.scouted.clear()

    assert loop.plan.ask(loop.journal, told.append)  # type: ignore[arg-type]
    loop.run(5)

    assert (loop.scouted, loop.counted) == ([32], [33])
    (line,) = told
    assert (line["k"], line["n"], line["forward"]) == ("count", 33, 7)
    assert not loop.plan.is_asked
    assert line in loop.told()  # it is in the record as well


def test_an_asker_gets_an_update_of_each_optimizer() -> None:
    loop = Loop(Journal(num_optimizers=2))
    for number in range(40):
        loop.run(1, optimizer=number % 2)
    told: list[dict[str, Any]] = []
    loop.plan.ask(loop.journal, told.append)  # type: ignore[arg-type]
    for number in range(8):
        loop.run(1, optimizer=number % 2)

    assert sorted(line["optimizer"] for line in told) == [0, 1]


def test_an_asker_waits_while_updates_are_counted_anyway() -> None:
    loop = Loop()
    loop.run(5)
    assert not loop.plan.ask(loop.journal, lambda line: None)  # type: ignore[arg-type]
    loop.run(30)
    assert loop.plan.ask(loop.journal, lambda line: None)  # type: ignore[arg-type]


def test_an_asker_hears_why_nothing_may_be_counted() -> None:
    loop = Loop()
    loop.run(30)
    loop.missing = "compiled"
    told: list[dict[str, Any]] = []
    loop.plan.ask(loop.journal, told.append)  # type: ignore[arg-type]
    loop.run(5)

    assert [line["missing"] for line in told] == ["compiled"]
    assert not loop.plan.is_asked


def test_a_run_that_counts_no_more_counts_for_an_asker() -> None:
    loop = Loop()
    loop.run(2500)
    told: list[dict[str, Any]] = []
    loop.plan.ask(loop.journal, told.append)  # type: ignore[arg-type]
    loop.run(5)

    assert len(told) == 1
