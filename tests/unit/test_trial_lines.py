"""Blocks, levers and facts from the lines of a trial."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steptime.errors import DamagedRunError
from steptime.measure.tried.trial_lines import (
    BlockTime,
    RankLines,
    fold_blocks,
    join_ranks,
    log_ratios,
    read_trial,
)
from unit.builders import MS, Line, make_head, make_row


def make_tag(
    number: int, round_: int, state: int, counts: int = 1, *, experiment: int = 0, samples: int = 16
) -> list[int]:
    return [number, experiment, round_, state, counts, samples]


def make_lines(
    tags: Sequence[Sequence[int]], rows: Sequence[Any] | None = None, **head: Any
) -> list[Line]:
    """A head, the tags, and an update of 10 ms of forward for each."""
    rows = [make_row(tag[0]) for tag in tags] if rows is None else rows
    return [make_head(**head), {"k": "u", "rows": rows}, {"k": "t", "rows": tags}]


def take(lines: Sequence[Line]) -> RankLines:
    found = RankLines()
    for line in lines:
        found.take(line)
    return found


def end(experiment: int = 0, **fields: Any) -> Line:
    facts = {"graphs": 0, "fallbacks": 0, "is_finite": True, **fields}
    return {"k": "experiment", "experiment": experiment, "n": 99, **facts}


ONE_ROUND = [
    *(make_tag(0, 0, 1, 0), make_tag(1, 0, 1), make_tag(2, 0, 1)),
    *(make_tag(3, 0, 0, 0), make_tag(4, 0, 0), make_tag(5, 0, 0)),
]


def test_a_block_is_the_sum_of_its_counted_updates() -> None:
    rows = [make_row(n, {"forward": 10 + n, "input_wait": 1}) for n in range(6)]
    first, second = take([*make_lines(ONE_ROUND, rows), end()]).blocks(0)

    assert (first.round, first.state, first.num_updates, first.num_samples) == (0, 1, 2, 32)
    assert first.wall_s == pytest.approx(0.025)
    assert (second.state, second.first_number) == (0, 4)
    assert first.void is second.void is None


def test_what_is_kept_apart_from_steps_is_no_part_of_a_block() -> None:
    rows = [make_row(n, {"forward": 10, "evaluation": 500, "checkpoint": 70}) for n in range(6)]
    first, _ = take([*make_lines(ONE_ROUND, rows), end()]).blocks(0)

    assert first.wall_s == first.cpu_s == pytest.approx(0.02)


def test_what_lies_between_steps_is_told_as_a_mean_without_compiling_and_the_first() -> None:
    spans = [{"evaluation": 900}, {}, {"checkpoint": 60}, {"compile": 5000}, {"evaluation": 40}, {}]
    rows = [make_row(n, {"forward": 10, **span}) for n, span in enumerate(spans)]

    lines = take(make_lines(ONE_ROUND, rows))

    assert lines.between_s() == pytest.approx(0.1 / 5)
    assert lines.between_s(with_gaps=False) == 0.0  # both are longer than a step
    assert take(make_lines(ONE_ROUND, rows[:1])).between_s() is None


def test_a_loop_that_saves_each_step_gains_less_than_its_steps() -> None:
    blocks = [make_block(wall_s=2.0), make_block(state=1, wall_s=1.0)]

    assert log_ratios(blocks, state=1, between_s=0.5).loop == (pytest.approx(math.log(1.5)),)
    assert log_ratios(blocks, state=1, between_s=0.0).loop == (pytest.approx(math.log(2)),)
    assert log_ratios(blocks, state=1).loop == ()


def test_the_last_block_waits_for_what_follows_it() -> None:
    running = take(make_lines(ONE_ROUND))
    assert [block.state for block in running.blocks(0)] == [1]

    running.take(end())
    assert [block.state for block in running.blocks(0)] == [1, 0]


@pytest.mark.parametrize(
    ("row", "void"),
    [
        (make_row(1, {"forward": 10, "compile": 5}), "compiled"),
        (make_row(1, is_detailed=2), "disturbed"),
        (None, "times_missing"),
    ],
)
def test_a_block_whose_times_say_nothing_is_void(row: Any, void: str) -> None:
    rows = [make_row(n) for n in range(6)]
    rows[1:2] = [] if row is None else [row]
    first, second = take([*make_lines(ONE_ROUND, rows), end()]).blocks(0)

    assert (first.void, second.void) == (void, None)


def test_a_state_that_fell_back_to_eager_is_void_in_all_its_blocks() -> None:
    first, second = take([*make_lines(ONE_ROUND), end(fallen_states=[1])]).blocks(0)

    assert (first.void, second.void) == ("fell_back", None)


def test_compiling_while_a_state_settles_does_no_harm() -> None:
    rows = [make_row(n, {"forward": 10, "compile": 900 * (n == 0)}) for n in range(6)]
    first, _ = take([*make_lines(ONE_ROUND, rows), end()]).blocks(0)

    assert first.void is None


def test_a_block_that_was_begun_again_counts_from_there() -> None:
    tags = [
        *(make_tag(0, 0, 1, 0), make_tag(1, 0, 1)),
        *(make_tag(2, 0, 1, 0), make_tag(3, 0, 1), make_tag(4, 0, 1), make_tag(5, 0, 0, 0)),
    ]
    (block,) = take(make_lines(tags)).blocks(0)

    assert (block.first_number, block.num_updates) == (3, 2)


def test_other_threads_are_not_in_the_blocks() -> None:
    rows = [make_row(n, th=n % 2) for n in range(6)]
    tags = [make_tag(n, 0, 0) for n in range(6)]
    (block,) = take([*make_lines(tags, rows), end()]).blocks(0)

    assert block.num_updates == 3


def test_unknown_samples_are_none_and_time_is_then_told_an_update() -> None:
    tags = [[*tag[:5], -1] for tag in ONE_ROUND]
    rows = [make_row(n, {"forward": 20 if n < 3 else 10}) for n in range(6)]
    blocks = take([*make_lines(tags, rows), end()]).blocks(0)
    ratios = log_ratios(blocks, state=1)

    assert blocks[0].num_samples is None
    assert not ratios.is_per_sample
    assert ratios.wall == pytest.approx((math.log(1 / 2),))


# -- several ranks


def make_block(round_: int = 0, state: int = 0, **fields: Any) -> BlockTime:
    values: dict[str, Any] = {
        "experiment": 0,
        "round": round_,
        "state": state,
        "first_number": 10 * round_ + 2 * state,
        "num_updates": 2,
        "num_samples": 32,
        "wall_s": 1.0,
        "cpu_s": 1.0,
    }
    return BlockTime(**{**values, **fields})


def test_ranks_wait_for_the_slowest_and_spend_cpu_together() -> None:
    (block,) = join_ranks([[make_block(wall_s=1.0)], [make_block(wall_s=1.5, cpu_s=3.0)]])

    assert (block.wall_s, block.cpu_s, block.num_samples) == (1.5, 4.0, 64)
    assert block.void is None


@pytest.mark.parametrize("other", [{"first_number": 4}, {"num_updates": 1}])
def test_ranks_in_different_states_make_a_block_void(other: dict[str, int]) -> None:
    (block,) = join_ranks([[make_block()], [make_block(**other)]])

    assert block.void == "ranks_differ"


def test_a_block_that_is_void_on_one_rank_is_void() -> None:
    (block,) = join_ranks([[make_block()], [make_block(void="compiled")]])

    assert block.void == "compiled"


def test_a_block_that_another_rank_has_not_finished_is_left_out() -> None:
    ranks = [[make_block(0), make_block(1)], [make_block(1)]]

    assert [block.round for block in join_ranks(ranks)] == [1]
    assert join_ranks([]) == ()


def test_samples_that_one_rank_does_not_know_are_unknown() -> None:
    (block,) = join_ranks([[make_block()], [make_block(num_samples=None)]])

    assert block.num_samples is None


# -- ratios


def test_a_state_twice_as_fast_has_the_logarithm_of_two() -> None:
    blocks = [make_block(0, 0, wall_s=2.0), make_block(0, 1, wall_s=1.0, cpu_s=0.5)]
    ratios = log_ratios(blocks, state=1)

    assert ratios.wall == ratios.cpu == pytest.approx((math.log(2),))
    assert (ratios.num_void, ratios.is_per_sample) == (0, True)


def test_twice_the_samples_in_the_same_time_are_twice_as_fast() -> None:
    ratios = log_ratios([make_block(0, 0), make_block(0, 1, num_samples=64)], state=1)

    assert ratios.wall == pytest.approx((math.log(2),))


def test_rounds_with_a_void_or_missing_block_do_not_count() -> None:
    blocks = [
        *(make_block(0, 0), make_block(0, 1, void="compiled")),
        *(make_block(1, 0), make_block(2, 0), make_block(2, 1)),
    ]
    ratios = log_ratios(blocks, state=1)

    assert (len(ratios.wall), ratios.num_void) == (1, 2)


BLOCKS = st.lists(
    st.tuples(
        *(st.integers(0, 4), st.integers(0, 2), st.integers(1, 100)),
        *(st.floats(0.001, 100.0), st.booleans()),
    ),
    unique_by=lambda block: block[:2],
)


@given(BLOCKS, st.integers(0, 2), st.randoms())
def test_ratios_do_not_depend_on_the_order_and_turn_round_with_the_states(
    drawn: list[Any], state: int, chance: Any
) -> None:
    blocks = [
        make_block(r, s, num_samples=n, wall_s=t, void="compiled" if is_void else None)
        for r, s, n, t, is_void in drawn
    ]
    there = log_ratios(blocks, state=state, reference=0)
    back = log_ratios(sorted(blocks, key=lambda b: b.round), state=0, reference=state)
    chance.shuffle(blocks)
    again = log_ratios(blocks, state=state, reference=0)

    assert sorted(again.wall) == pytest.approx(sorted(there.wall))
    assert sorted(-x for x in back.wall) == pytest.approx(sorted(there.wall))
    assert there.num_void == again.num_void


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(1, 4), st.integers(0, 2)), max_size=8),
    st.integers(0, 40),
)
def test_blocks_read_so_far_are_those_read_in_the_end(drawn: list[Any], num_seen: int) -> None:
    tags = []
    for round_, (state, num_counted, num_settling) in enumerate(drawn):
        for index in range(num_settling + num_counted):
            tags.append(make_tag(len(tags), round_, state, int(index >= num_settling)))
    whole = take(make_lines(tags)).updates()
    early = fold_blocks(whole[:num_seen], is_over=False)

    assert early == fold_blocks(whole, is_over=True)[: len(early)]


# -- levers, facts, files


def test_levers_facts_and_ends_are_kept() -> None:
    lever = {"k": "lever", "n": 4, "name": "autocast", "settings": {"dtype": "bf16"}}
    found = take(
        [
            make_head(),
            lever | {"state": 1, "experiment": 3, "error": "ValueError: no"},
            {"k": "facts", "n": 4, "facts": {"device": "cpu"}},
            {"k": "counts", "n": 4, "counts": {"autocast:skipped_update": 1}},
            end(3, graphs=2, fallbacks=1, is_finite=False),
        ]
    )
    (line,) = found.levers
    assert (line.name, line.state, line.error) == ("autocast", 1, "ValueError: no")
    assert found.facts == {"device": "cpu"}
    assert found.counts == {"autocast:skipped_update": 1}
    ended = found.experiment_end(3)
    assert ended is not None
    assert (ended.graphs, ended.fallbacks, ended.is_finite) == (2, 1, False)
    assert found.experiment_end(4) is None


@pytest.mark.parametrize(
    "line",
    [
        {"k": "t", "rows": [[1, 2]]},
        {"k": "t", "rows": [[1, 0, 0, 0, 1, "x"]]},
        {"k": "u", "rows": [[1, 2, 3]]},
        {"k": "t"},
    ],
)
def test_a_line_of_another_shape_is_refused(line: Line) -> None:
    with pytest.raises(DamagedRunError):
        take([make_head(), line])


def test_a_folder_is_read_by_rank_with_the_process_that_stepped_most(tmp_path: Path) -> None:
    def write(name: str, lines: Sequence[Line]) -> None:
        (tmp_path / name).write_text("".join(json.dumps(line) + "\n" for line in lines))

    write("rank-0.jsonl", make_lines(ONE_ROUND[:2]))
    write("rank-0-77.jsonl", [*make_lines(ONE_ROUND), {"k": "t", "rows": [[]]}, end()])
    write("rank-1.jsonl", make_lines(ONE_ROUND, rank=1))
    ranks = read_trial(tmp_path)

    assert [(found.rank, found.num_updates) for found in ranks] == [(0, 6), (1, 6)]
    assert ranks[0].updates()[1].wall_ns == 10 * MS
