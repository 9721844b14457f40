"""What a comparison leaves open, and what it tells its reader to do."""

from __future__ import annotations

from dataclasses import replace

import pytest

from compare_cases import CASES, make_compared, make_set
from steptime.compare.judge import compare
from steptime.compare.values import Comparison, Obstacle
from steptime.core.process_end import ProcessEnd, RunState
from steptime.report.blocks.compare.comparison_report import (
    ComparisonRequest,
    describe_reach,
    next_step,
)

AGAIN = "steptime run -- python train.py --lr 0.1"


def step_of(found: Comparison) -> tuple[str, str | None] | None:
    return next_step(found, ComparisonRequest())


@pytest.mark.parametrize(
    ("name", "sentence", "command"),
    [
        ("slower", "Look at a run of B:", "steptime show 20260921-191320-0005"),
        (
            "no_difference",
            "Make about 14 runs on each side, in turns, to tell a difference of 5.0 %; fewer are "
            "enough on a quiet machine:",
            AGAIN,
        ),
        ("single", "Make at least 3 runs on each side, in turns:", AGAIN),
        ("two_runs", "Make at least 3 runs on each side, in turns:", AGAIN),
        ("without_steps", "See why it failed:", "steptime show 20260921-151320-0001"),
    ],
)
def test_there_is_something_to_do(name: str, sentence: str, command: str) -> None:
    assert step_of(CASES[name]()) == (sentence, command)


def test_nothing_is_left_to_do_where_runs_are_equal_within_the_limit() -> None:
    assert step_of(CASES["passed"]()) is None


def test_runs_far_apart_are_not_called_equal() -> None:
    assert describe_reach(CASES["no_difference"]()) == (
        "This does not show that they are equal: B may be up to 13.4 % slower, or up to 6.7 % "
        "faster."
    )
    assert describe_reach(CASES["passed"]()) == "B is at most 3.3 % slower."
    assert describe_reach(CASES["slower"]()) is None
    assert describe_reach(CASES["single"]()) is None


def test_a_claim_that_does_not_reach_the_limit_needs_more_runs() -> None:
    a, b = make_set((0.100, 0.101, 0.099)), make_set((0.104, 0.105, 0.103), first=1)
    found = step_of(compare(a, b, limit=0.05))

    assert found == ("Make a few more runs, in turns:", AGAIN)


def test_noise_that_many_runs_would_not_mend_is_said() -> None:
    wild = compare(make_set((0.1, 0.2, 0.3)), make_set((0.15, 0.25, 0.1), first=1))

    assert wild.needed_runs is None
    found = step_of(wild)
    assert found is not None
    assert found[0].startswith("More runs would not help much")


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("too_few_steps", "Let each run train longer"),
        ("named_twice", "Name each run once"),
        ("other_script", "Make the runs of B as those of A were made"),
    ],
)
def test_an_obstacle_says_how_to_get_past_it(code: str, says: str) -> None:
    obstacle = Obstacle(code=code, facts={"run": "x"}, is_final=code != "other_script")

    found = step_of(replace(CASES["slower"](), obstacles=(obstacle,)))

    assert found is not None
    assert found[0].startswith(says)


def test_why_a_run_failed_comes_before_its_few_steps() -> None:
    end = ProcessEnd(state=RunState.FAILED, exit_code=1)
    failed = make_compared(None, number=1, num_steps=3, end=end)

    assert step_of(compare([make_compared()], [failed])) == (
        "See why it failed:",
        "steptime show 20260921-151320-0001",
    )
