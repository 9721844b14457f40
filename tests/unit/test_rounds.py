"""Rounds folded in the guest say the same as a row an update, folded in the parent."""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steptime.guest.timeline.recorder import Recorder
from steptime.measure.fold.stream import read_stream
from steptime.measure.steps.step_blocks import StepBlock
from steptime.measure.steps.step_fold import RankSteps, fold_stream
from steptime.measure.values.measurement import PHASES, SPANS, Step
from steptime.record.buckets import CHECKPOINT
from steptime.record.lines import Torn
from steptime.record.places import BY_HAND
from unit.guest_loop import FIRST_TIME, Loop

NEVER_FOLDED = 10**9
TOLERANCE_S = 2e-6
"""A round's time in a block is in whole microseconds."""


class Optimizer:
    """Something that can be weakly referenced."""


OPTIMIZERS = (Optimizer(), Optimizer(), Optimizer())

KNOWN = [(0, 1, False), (1, 1, False), (2, 1, False)]
"""A round of all three: after it no optimizer can be the first of another loop."""

Happening = tuple[int, int, bool]
"""Number of the optimizer, milliseconds of everything, whether the update is skipped."""

happenings = st.lists(
    st.tuples(st.integers(0, 2), st.integers(1, 50), st.booleans()), min_size=1, max_size=60
)


def make_head() -> dict[str, Any]:
    return {
        "rank": None,
        "rank_source": "order",
        "world_size": 1,
        "local_rank": 0,
        "torch": "2.13.0",
        "device": "cpu",
        "device_name": None,
        "num_threads": 1,
    }


def go_through(loop: Loop, happenings: Sequence[Happening]) -> None:
    """One update each: a batch, a forward, a backward, now and then a checkpoint."""
    is_by_hand = any(number == BY_HAND for number, _, _ in happenings)
    for number, milliseconds, is_skipped in happenings:
        ns = milliseconds * 1_000_000 + 137  # no whole microseconds
        loop.batch(ns)
        loop.forward(2 * ns)
        loop.spend(ns // 3)
        loop.backward(3 * ns)
        if is_by_hand:  # as the hooks do until an optimizer steps
            loop.timeline.end_by_hand()
        if number == BY_HAND:
            continue
        is_by_hand = False
        if is_skipped:
            loop.timeline.skip_update(loop.sink.index_of(OPTIMIZERS[number]))
            with loop.span(CHECKPOINT):
                loop.spend(ns)
        else:
            loop.step(ns, optimizer=loop.sink.index_of(OPTIMIZERS[number]))


def record(
    happenings: Sequence[Happening], *, full_updates: int, rounds_a_block: int = 3
) -> tuple[RankSteps, list[dict[str, Any]]]:
    """What the parent makes of a run, and the lines of its file."""
    with ExitStack() as stack:
        stack.enter_context(patch("steptime.guest.timeline.recorder.FULL_UPDATES", full_updates))
        stack.enter_context(
            patch("steptime.guest.timeline.round_blocks.ROUNDS_A_BLOCK", rounds_a_block)
        )
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        recorder = Recorder(folder, make_head)
        recorder.zero_ns = FIRST_TIME
        go_through(Loop(recorder), happenings)
        recorder.close()
        assert recorder.failures == {}
        path = Path(folder) / "rank-0.jsonl"
        stream = read_stream(path, torn := Torn())
        lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert torn.count == 0
    assert stream is not None
    rank = fold_stream(stream)
    assert rank is not None
    return rank, lines


def times_s(rank: RankSteps) -> list[float]:
    found = [step.step_time_s for step in rank.steps]
    for block in rank.blocks:
        found += block.times_s
    return found


def total(rank: RankSteps, name: str) -> float:
    items: list[Step | StepBlock] = [*rank.steps, *rank.blocks]
    return math.fsum((item.spans_s if name in SPANS else item.wall_s)[name] for item in items)


@settings(max_examples=60)
@given(happenings, st.integers(0, 20))
def test_any_updates_fold_to_the_same_steps_in_blocks_as_one_by_one(
    happenings: list[Happening], full_updates: int
) -> None:
    happenings = KNOWN + happenings
    one_by_one, _ = record(happenings, full_updates=NEVER_FOLDED)
    in_blocks, _ = record(happenings, full_updates=full_updates)

    assert in_blocks.num_steps == one_by_one.num_steps
    assert in_blocks.num_updates == one_by_one.num_updates == len(happenings)
    assert in_blocks.num_skipped == one_by_one.num_skipped
    assert in_blocks.num_backwards == one_by_one.num_backwards
    for a, b in zip(times_s(in_blocks), times_s(one_by_one), strict=True):
        assert abs(a - b) < TOLERANCE_S


@settings(max_examples=30)
@given(happenings, st.integers(0, 20))
def test_sums_by_phase_are_the_same_in_blocks_as_one_by_one(
    happenings: list[Happening], full_updates: int
) -> None:
    happenings = KNOWN + happenings
    one_by_one, _ = record(happenings, full_updates=NEVER_FOLDED)
    in_blocks, _ = record(happenings, full_updates=full_updates)

    for name in (*PHASES, *SPANS):
        difference_s = total(in_blocks, name) - total(one_by_one, name)
        assert abs(difference_s) < 1e-9


def test_cpu_time_in_a_block_is_that_of_its_sampled_rounds_alone() -> None:
    textbook = [(0, 10, False)] * 400  # the first 256 updates are sampled, then one block in eight

    _, lines = record(textbook, full_updates=240, rounds_a_block=100)

    first, second = (line["row"] for line in lines if line["k"] == "b")
    num_buckets = len(lines[0]["buckets"])
    where = 7 + num_buckets + len(lines[0]["counts"])
    assert first[where] == 16 + 16  # updates 240 to 255, then the block from 256 on
    assert second[where] == 16  # 384 to 399
    forward = lines[0]["buckets"].index("forward")
    cpu, wall = first[where + 1 + forward], first[7 + forward]
    assert cpu * 100 == wall * 32


def test_a_block_begins_where_the_rows_end() -> None:
    gan = [(0, 10, False), (1, 20, False)] * 30

    rank, lines = record(gan, full_updates=11, rounds_a_block=10)

    rows = [row for line in lines if line["k"] == "u" for row in line["rows"]]
    blocks = [line["row"] for line in lines if line["k"] == "b"]
    assert [row[0] for row in rows] == list(range(12))  # the sixth round is finished first
    assert [(block[0], block[2], block[3]) for block in blocks] == [
        (12, 10, 20),
        (32, 10, 20),
        (52, 4, 8),
    ]
    assert blocks[0][5] == rows[-1][4]  # start and end
    assert rank.num_steps == 30


def test_an_optimizer_that_comes_later_may_begin_the_rounds() -> None:
    warmup, training = [(0, 10, False)] * 5, [(1, 10, False), (2, 10, False)] * 50

    rank, lines = record(warmup + training, full_updates=20, rounds_a_block=10)

    assert sum(line["k"] == "b" for line in lines) == 5
    assert rank.num_steps == 55


def test_another_loop_that_begins_inside_a_block_is_one_step_short() -> None:
    loops = [(number, 10, False) for number in (0, 1) for _ in range(10)]

    rank, _ = record(loops, full_updates=5, rounds_a_block=3)

    assert rank.num_steps == 19  # the guest cannot know that the first will never step again
    assert rank.num_updates == 20


def test_steps_by_hand_fold_to_the_same_in_blocks_as_one_by_one() -> None:
    by_hand = [(BY_HAND, 3, False)] * 50

    one_by_one, _ = record(by_hand, full_updates=NEVER_FOLDED)
    in_blocks, lines = record(by_hand, full_updates=20)

    for rank in (one_by_one, in_blocks):
        assert (rank.num_steps, rank.num_by_hand, rank.num_backwards) == (50, 50, 50)
        assert rank.num_updates == 0
    assert lines[-1]["updates"] == 0
    for a, b in zip(times_s(in_blocks), times_s(one_by_one), strict=True):
        assert abs(a - b) < TOLERANCE_S


def test_the_first_update_after_blocks_by_hand_takes_the_last_backward_call() -> None:
    rank, _ = record([(BY_HAND, 3, False)] * 50 + [(0, 3, False)] * 10, full_updates=20)

    assert (rank.num_steps, rank.num_updates, rank.num_backwards) == (60, 10, 60)


def test_a_kill_in_the_middle_of_a_block_loses_no_step_but_its_phases(tmp_path: Path) -> None:
    with (
        patch("steptime.guest.timeline.recorder.FULL_UPDATES", 4),
        patch("steptime.guest.timeline.round_blocks.ROUNDS_A_BLOCK", 3),
    ):
        recorder = Recorder(str(tmp_path), make_head)
        recorder.zero_ns = FIRST_TIME
        loop = Loop(recorder)
        for _ in range(6):
            go_through(loop, [(0, 2, False), (1, 3, True)])
            recorder.flush()

    stream = read_stream(tmp_path / "rank-0.jsonl", Torn())
    assert stream is not None
    rank = fold_stream(stream)
    assert rank is not None
    assert (rank.num_steps, rank.num_updates, rank.num_backwards) == (6, 12, 12)
    assert [block.has_phases for block in rank.blocks] == [True, False]
    assert rank.blocks[-1].times_s[0] == pytest.approx(rank.blocks[0].times_s[-1], abs=1e-5)


def test_a_block_names_its_rounds_that_were_disturbed() -> None:
    with tempfile.TemporaryDirectory() as folder:
        recorder = Recorder(folder, make_head)
        recorder.zero_ns, recorder.full_updates = FIRST_TIME, 5
        loop = Loop(recorder)
        for number in range(20):
            loop.batch(1_000_000)
            if number in (2, 7, 11):
                loop.timeline.disturb()
            loop.step(1_000_000, optimizer=0)
        recorder.close()
        stream = read_stream(Path(folder) / "rank-0.jsonl", Torn())

    assert stream is not None
    (block,) = stream.blocks
    assert [block.first_number + place for place in block.disturbed] == [7, 11]
