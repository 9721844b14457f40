"""A step in which the run stood still does not count, and a stall knows the steps before it."""

from __future__ import annotations

from dataclasses import replace

from steptime.measure.fold.rank_fold import select_ranks
from steptime.measure.fold.run_fold import measure
from unit.builders import MS, by_bucket, by_count, make_block, make_head, make_row, read
from unit.test_rules_stall import make_rank, make_stall

# Forty steps of 10 ms from 1000.0 on, one of 16 s, forty more.
BEGAN = 1000.4
LONG_NS = 16_000 * MS


def shifted_row(number: int) -> list[int]:
    row = make_row(number)
    return [*row[:3], row[3] + LONG_NS, row[4] + LONG_NS, *row[5:]]


def long_row(number: int) -> list[int]:
    wall = by_bucket({"backward": 16_010})
    end_ns = (number + 1) * 10 * MS + LONG_NS
    return [number, 0, 0, end_ns - sum(wall), end_ns, 0, 1, *wall, *by_count(forwards=1), *wall]


ROWS = [*(make_row(i) for i in range(40)), long_row(40), *(shifted_row(i) for i in range(41, 81))]
FILES = {"rank-0.jsonl": [make_head(), {"k": "u", "rows": ROWS}]}
STALL = make_stall(
    make_rank(0, "lock", num_steps=17),
    make_rank(7, "lock", num_steps=17),
    duration_s=16.0,
)
STALL = replace(STALL, began_unix_s=BEGAN, seen_unix_s=BEGAN + 12)


def test_the_step_in_which_the_run_stood_still_does_not_count() -> None:
    records = replace(read(FILES), stalls=(STALL,))

    (rank,) = select_ranks(records)
    measurement = measure(records)

    assert [step.index for step in rank.steps if step.is_disturbed] == [40]
    backward = next(p for p in measurement.phases if p.name == "backward")
    assert backward.fraction == 0


def test_a_stall_without_an_end_marks_nothing() -> None:
    records = replace(read(FILES), stalls=(replace(STALL, duration_s=None),))

    assert not any(step.is_disturbed for step in select_ranks(records)[0].steps)


def test_the_steps_before_a_stall_are_counted_when_all_are_known() -> None:
    records = replace(read(FILES), stalls=(STALL,))

    (stall,) = measure(records).stalls

    assert [one.num_steps for one in stall.ranks] == [40, 17]


def test_steps_in_blocks_are_counted_too() -> None:
    files = {"rank-0.jsonl": [make_head(), make_block(0, 100)]}
    stall = replace(STALL, began_unix_s=1001.0, seen_unix_s=1013.0)

    (found,) = measure(replace(read(files), stalls=(stall,))).stalls

    assert found.ranks[0].num_steps == 100
