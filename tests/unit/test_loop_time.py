"""The time of a whole loop, over the updates that both sides of a pair made."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from steptime.measure.tried.trial_lines import TaggedUpdate
from steptime.tune.trials.facts.loop_time import LoopPart, loop_part, loop_ratio, mean_update_s
from steptime.tune.trials.process_pairs import Side, compare_sides
from steptime.tune.values.study_values import WELL
from unit.builders import make_measurement


def loop(step_s: float, num: int, *, first: int = 0, saves_s: float = 0.0) -> LoopPart:
    """A loop that saves for so long after each fifth step."""
    ends_s = [number * step_s + (number // 5) * saves_s for number in range(num)]
    return LoopPart(first=first, ends_s=tuple(ends_s))


def update(number: int, **fields: int | None) -> TaggedUpdate:
    base = TaggedUpdate(
        number=number, experiment=-1, round=0, state=0, counts=True, num_samples=8,
        wall_ns=1, cpu_ns=1, end_ns=number * 10**9,
    )  # fmt: skip
    return replace(base, **fields)  # type: ignore[arg-type]


def test_a_pair_is_compared_over_the_same_updates() -> None:
    slow, fast = loop(0.2, 21, saves_s=0.5), loop(0.1, 40, saves_s=0.5)

    # 20 steps and 4 times of saving in both, however many more the faster one made.
    assert loop_ratio(slow, fast) == pytest.approx(math.log(6.0 / 4.0))


def test_what_a_look_of_steptime_took_is_no_part_of_a_loop() -> None:
    """An operator probe of 0.2 s, in a loop whose steps took 0.03 to 0.05 s besides."""
    walls = [0.04] * 30
    walls[13], walls[20], walls[25] = 0.24, 0.05, 0.05
    updates = [
        update(number, wall_ns=round(wall * 1e9), end_ns=round(sum(walls[: number + 1]) * 1e9))
        for number, wall in enumerate(walls)
    ]
    looked_at = {13, 25}
    seen = [replace(one, is_disturbed=one.number in looked_at) for one in updates]

    part, whole = loop_part(seen), loop_part(updates)

    assert part is not None
    assert whole is not None
    # The second look took no longer than an update may without one: it stays.
    assert mean_update_s(part) == pytest.approx((27 * 0.04 + 2 * 0.05) / 29)
    assert mean_update_s(whole) == pytest.approx((26 * 0.04 + 2 * 0.05 + 0.24) / 29)


def test_what_one_side_compiled_at_the_beginning_counts_in_neither() -> None:
    assert loop_ratio(loop(0.2, 11, first=5), loop(0.2, 11)) == pytest.approx(0.0)
    compiled = [update(n, compile_ns=5 if n == 2 else 0) for n in range(10)]
    assert loop_part(compiled) == LoopPart(first=2, ends_s=tuple(map(float, range(10))))


@pytest.mark.parametrize(("first_step", "first"), [(3, 6), (18, 10)])
def test_the_steps_in_which_a_process_warmed_up_are_no_part_of_its_loop(
    first_step: int, first: int
) -> None:
    measurement = replace(make_measurement(), num_optimizer_updates=40, num_steps=20)
    assert measurement.steady is not None
    steady = replace(measurement.steady, first_step=first_step)
    updates = [update(number) for number in range(40)]

    part = loop_part(updates, replace(measurement, steady=steady))

    assert part is not None
    assert part.first == first  # two updates a step, and a quarter of what was shown at most


@pytest.mark.parametrize("other", [None, loop(0.1, 3), loop(0.0, 9)])
def test_of_too_few_updates_nothing_is_said(other: LoopPart | None) -> None:
    assert loop_ratio(loop(0.2, 20), other) is None


def test_updates_whose_times_were_lost_make_no_loop() -> None:
    assert loop_part([update(0), update(1, end_ns=None)]) is None
    assert loop_part([]) is None


def test_a_comparison_of_processes_says_how_much_longer_the_candidate_took_to_begin() -> None:
    before, after = (Side(ending=WELL, step_s=0.1, start_s=start_s) for start_s in (3.0, 8.0))

    (arm,) = compare_sides((), [(before, after)] * 3).arms
    (unknown,) = compare_sides((), [(before, replace(after, start_s=None))]).arms

    assert (arm.start_s, unknown.start_s) == (5.0, None)


def test_a_comparison_of_processes_has_the_loop_beside_the_step() -> None:
    before = Side(ending=WELL, step_s=0.2, samples=8.0, loop=loop(0.2, 21, saves_s=0.5))
    after = Side(ending=WELL, step_s=0.1, samples=8.0, loop=loop(0.1, 21, saves_s=0.5))

    (arm,) = compare_sides((), [(before, after), (before, replace(after, loop=None))]).arms

    assert arm.log_ratios == pytest.approx((math.log(2), math.log(2)))
    assert arm.loop_log_ratios == pytest.approx((math.log(1.5),))
