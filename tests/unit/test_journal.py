"""The journal: what the hooks note, replayed, says the same as the timeline told at once."""

from __future__ import annotations

import json
import weakref
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from steptime.guest.sites.site_windows import SiteWindows
from steptime.guest.timeline.acts import (
    ENTER_BACKWARD,
    ENTER_EVALUATION,
    ENTER_FORWARD,
    ENTER_GRAD,
    ENTER_INPUT,
    LEAVE_BACKWARD,
    LEAVE_EVALUATION,
    LEAVE_FORWARD,
    LEAVE_INPUT,
    LEAVE_LOSS,
)
from steptime.guest.timeline.journal import Journal
from steptime.guest.timeline.recorder import FLUSH_NS, MAX_PENDING, Recorder
from steptime.guest.timeline.watch_budget import SAMPLED_AT_FIRST
from steptime.record.buckets import (
    BACKWARD,
    BUCKETS,
    COUNTS,
    EVALUATION,
    FORWARD,
    INPUT_WAIT,
    LOSS,
    OPTIMIZER,
    OTHER,
)

MS = 1_000_000


class Optimizer:
    """Something that steps."""


class Script:
    """A training loop as the hooks note it, on a clock advanced by hand."""

    def __init__(self, folder: Path) -> None:
        self.now = self.cpu = 0
        self.recorder = Recorder(str(folder), lambda: {"rank": 0})
        self.recorder.zero_ns = 0
        self.journal = Journal(self.recorder, clock=lambda: self.now, cpu_clock=lambda: self.cpu)
        self.optimizer = Optimizer()
        self.path = folder / "rank-0.jsonl"

    def spend(self, ms: int) -> None:
        self.now += ms * MS
        self.cpu += ms * MS // 2

    def call(self, enter: int, leave: int, bucket: int, ms: int) -> None:
        self.journal.note(enter, bucket)
        self.spend(ms)
        self.journal.note(leave, OTHER)

    def step(self) -> None:
        journal = self.journal
        self.call(ENTER_INPUT, LEAVE_INPUT, INPUT_WAIT, 1)
        journal.batches += 1
        self.call(ENTER_FORWARD, LEAVE_FORWARD, FORWARD, 2)
        self.call(LOSS, LEAVE_LOSS, LOSS, 3)
        self.call(ENTER_BACKWARD, LEAVE_BACKWARD, BACKWARD, 4)
        self.spend(5)
        journal.enter_optimizer(has_closure=False)
        self.spend(6)
        journal.syncs += 2
        journal.leave_optimizer(self.optimizer, 0)

    def rows(self) -> list[dict[str, Any]]:
        self.recorder.close()
        lines = [json.loads(line) for line in self.path.read_text().splitlines()]
        rows = [row for line in lines if line["k"] == "u" for row in line["rows"]]
        return [named(row) for row in rows]


def named(row: list[int]) -> dict[str, Any]:
    wall, rest = row[7 : 7 + len(BUCKETS)], row[7 + len(BUCKETS) :]
    return {
        "time": row[4] - row[3],
        "wall": {name: ns // MS for name, ns in zip(BUCKETS, wall, strict=True) if ns},
        "counts": {name: n for name, n in zip(COUNTS, rest, strict=False) if n},
        "cpu": sum(rest[len(COUNTS) :]),
        "is_sampled": row[6],
    }


@pytest.fixture
def script(tmp_path: Path) -> Script:
    return Script(tmp_path)


def test_notes_are_replayed_into_phases_and_counts(script: Script) -> None:
    script.step()
    script.step()

    _, row = script.rows()
    assert row["wall"] == {
        "input_wait": 1,
        "forward": 2,
        "loss": 3,
        "backward": 4,
        "gradient_processing": 5,
        "optimizer": 6,
    }
    assert row["counts"] == {"batches": 1, "syncs": 2, "forwards": 1, "backwards": 1}
    assert row["time"] == 21 * MS


def test_cpu_time_of_an_update_is_taken_whole_where_it_is_not_sampled(script: Script) -> None:
    for _ in range(SAMPLED_AT_FIRST + 200):
        script.step()

    rows = script.rows()
    assert {row["is_sampled"] for row in rows} == {0, 1}
    assert len({row["cpu"] for row in rows[1:]}) == 1


def test_the_pause_of_writing_falls_to_what_was_open_before(script: Script) -> None:
    flush = script.recorder.flush

    def slow_flush(bucket: int) -> None:
        flush(bucket)
        script.spend(50)

    script.step()
    script.recorder.flush = slow_flush  # type: ignore[method-assign]
    script.spend(FLUSH_NS // MS + 1)
    script.call(ENTER_FORWARD, LEAVE_FORWARD, FORWARD, 2)
    script.recorder.flush = flush  # type: ignore[method-assign]
    script.step()

    wall = script.rows()[1]["wall"]
    assert wall["forward"] == 4
    assert wall["other"] == FLUSH_NS // MS + 1 + 50


def test_an_update_is_on_disk_at_the_first_marker_that_comes_late_enough(script: Script) -> None:
    script.step()
    assert not script.path.exists()
    script.spend(FLUSH_NS // MS + 1)
    script.call(ENTER_FORWARD, LEAVE_FORWARD, FORWARD, 2)

    assert '"k":"u"' in script.path.read_text()


def test_notes_do_not_pile_up_where_no_time_passes(script: Script) -> None:
    script.spend = lambda ms: None  # type: ignore[method-assign]
    for _ in range(MAX_PENDING * 3):
        script.step()

    assert len(script.journal.ends) < MAX_PENDING


def test_counts_of_an_evaluation_are_left_out(script: Script) -> None:
    script.step()
    script.journal.batches += 7
    script.journal.replay()
    script.journal.note_with_cpu(ENTER_EVALUATION, EVALUATION)
    script.spend(9)
    script.journal.note_with_cpu(LEAVE_EVALUATION, OTHER)
    script.step()

    row = script.rows()[1]
    assert row["counts"]["batches"] == 1
    assert row["wall"]["evaluation"] == 9


def test_a_call_inside_a_closure_is_seen_and_the_step_ends_once(script: Script) -> None:
    journal = script.journal
    journal.enter_optimizer(has_closure=True)
    assert journal.top == OTHER
    script.call(ENTER_FORWARD, LEAVE_FORWARD, FORWARD, 2)
    journal.enter_optimizer(has_closure=False)
    journal.leave_optimizer(script.optimizer, 0)
    journal.leave_optimizer(script.optimizer, 0)

    assert len(script.rows()) == 1


def test_a_step_left_by_an_exception_can_be_dropped(script: Script) -> None:
    journal = script.journal
    journal.enter_optimizer(has_closure=False)
    assert journal.top == OPTIMIZER
    journal.drop_optimizers()
    script.call(ENTER_BACKWARD, LEAVE_BACKWARD, BACKWARD, 4)
    script.step()

    assert journal.optimizers == []
    assert len(script.rows()) == 1


def test_a_step_that_began_before_the_hooks_is_left_out(script: Script) -> None:
    script.journal.leave_optimizer(script.optimizer, 0)
    script.step()

    assert len(script.rows()) == 1


def test_a_skipped_update_counts(script: Script) -> None:
    script.call(ENTER_BACKWARD, LEAVE_BACKWARD, BACKWARD, 4)
    script.journal.skip_update(script.optimizer)

    assert script.rows()[0]["wall"]["backward"] == 4


def test_our_own_time_counts_an_interruption_as_the_longest_marker(script: Script) -> None:
    ticks = iter((10, 10 + 7, 100, 100 + 900 * MS))
    script.journal.clock = lambda: next(ticks)
    script.journal.note(ENTER_FORWARD, FORWARD)
    script.journal.note(LEAVE_FORWARD, OTHER)

    assert script.journal.self_ns == 7 + 50_000


def test_a_failing_replay_is_counted_and_starts_afresh(script: Script) -> None:
    script.journal.log += (10_000, 0, 0)
    script.journal.replay()
    script.step()

    assert script.recorder.failures == {"replay": 1}


# -- no optimizer has stepped, or it let nothing through


def test_a_backward_call_ends_a_row_until_an_optimizer_steps(script: Script) -> None:
    for _ in range(2):
        script.call(ENTER_FORWARD, LEAVE_FORWARD, FORWARD, 2)
        script.call(ENTER_BACKWARD, LEAVE_BACKWARD, BACKWARD, 4)
        script.journal.end_by_hand()
    script.spend(3)
    script.journal.enter_optimizer(has_closure=False)
    script.spend(6)
    script.journal.leave_optimizer(script.optimizer, 0)

    first, second, update = script.rows()
    assert first["wall"] == second["wall"] == {"forward": 2, "backward": 4}
    assert update["wall"] == {"gradient_processing": 3, "optimizer": 6}
    assert script.journal.has_stepped
    last = [json.loads(line) for line in script.path.read_text().splitlines()][-1]
    assert (last["k"], last["updates"], last["backwards"]) == ("end", 1, 2)


def test_what_follows_a_row_by_hand_is_other_where_no_optimizer_comes(script: Script) -> None:
    for _ in range(2):
        script.call(ENTER_FORWARD, LEAVE_FORWARD, FORWARD, 2)
        script.call(ENTER_BACKWARD, LEAVE_BACKWARD, BACKWARD, 4)
        script.journal.end_by_hand()
        script.spend(7)

    _, second = script.rows()
    assert second["wall"] == {"other": 7, "forward": 2, "backward": 4}


def test_gradients_asked_for_are_a_backward_that_is_not_counted(script: Script) -> None:
    script.call(ENTER_FORWARD, LEAVE_FORWARD, FORWARD, 2)
    script.spend(1)
    script.call(ENTER_GRAD, LEAVE_BACKWARD, BACKWARD, 4)
    script.journal.end_by_hand()

    (row,) = script.rows()
    assert row["wall"] == {"forward": 2, "loss": 1, "backward": 4}
    assert row["counts"] == {"forwards": 1}


def test_a_wrapper_is_known_by_its_first_step_that_comes_through(script: Script) -> None:
    journal, inner = script.journal, Optimizer()

    def step(*, comes_through: bool) -> None:
        script.call(ENTER_BACKWARD, LEAVE_BACKWARD, BACKWARD, 4)
        journal.enter_optimizer(has_closure=False)
        if comes_through:
            journal.enter_optimizer(has_closure=False)
            script.spend(6)
            journal.leave_optimizer(inner, 0)
        journal.leave_optimizer(script.optimizer, 0)

    for number in range(6):
        step(comes_through=number % 2 == 1)

    rows = script.rows()
    assert [row["counts"].get("inner_steps", 0) for row in rows] == [0, 1, 1, 1]
    assert [row["counts"]["backwards"] for row in rows] == [1, 1, 2, 2]
    assert rows[-1]["wall"] == {"backward": 8, "optimizer": 6}


def test_notes_do_not_pile_up_where_nothing_ever_steps(script: Script) -> None:
    for _ in range(1000):
        script.call(ENTER_FORWARD, LEAVE_FORWARD, FORWARD, 2)

    assert len(script.journal.log) < 1000
    assert not script.path.exists()


def test_a_profiler_hears_of_updates_on_a_device_too(tmp_path: Path) -> None:
    class Profile:
        """What a window asks of a profiler."""

        is_over = False
        optimizers: list[int] = []  # noqa: RUF012

        def end_update(self, journal: Journal, optimizer: int, *, may_begin: bool) -> None:
            self.optimizers.append(optimizer)

    script = Script(tmp_path)
    script.step()
    script.journal.be_direct()
    frames: Any = SimpleNamespace(stack=lambda _: ())
    profile: Any = Profile()
    script.journal.windows = SiteWindows(frames, clock=lambda: 0, profile=profile)
    script.step()
    script.step()

    assert profile.optimizers == [0, 0]
    assert script.recorder.failures == {}


def test_the_largest_call_with_gradients_is_known_although_an_update_had_none(
    script: Script,
) -> None:
    script.journal.shapes += [(4, 8), 12]
    script.step()
    script.step()  # of a second optimizer

    assert script.journal.acting.trained == 32


# -- evaluations of a closure


def evaluate(script: Script) -> None:
    """A closure: 1 ms of its own, forward 2 ms, backward 4 ms; then 3 ms of the optimizer."""
    script.spend(1)
    script.call(ENTER_FORWARD, LEAVE_FORWARD, FORWARD, 2)
    script.call(ENTER_BACKWARD, LEAVE_BACKWARD, BACKWARD, 4)
    script.journal.end_evaluation()
    script.spend(3)


def evaluate_in_one_step(script: Script, num: int) -> None:
    script.journal.enter_optimizer(has_closure=True)
    script.journal.evaluated = weakref.ref(script.optimizer)
    for _ in range(num):
        evaluate(script)
    script.journal.leave_optimizer(script.optimizer, 0)


@pytest.mark.parametrize("num", [1, 13, 400])
def test_evaluations_are_part_of_their_step_and_counted_beside_it(script: Script, num: int) -> None:
    for _ in range(3):
        evaluate_in_one_step(script, num)
    script.step()

    assert [row["counts"]["backwards"] for row in script.rows()] == [num, num, num, 1]
    assert script.rows()[-1]["wall"]["input_wait"] == 1
    assert (script.recorder.num_evaluations, script.recorder.num_evaluated_steps) == (3 * num, 3)
