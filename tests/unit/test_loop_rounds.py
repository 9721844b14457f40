"""Rows of optimizers that step many times in turn are loops, and no rounds."""

from __future__ import annotations

import pytest

from steptime.measure.steps.rounds import Rows, fold_rounds


def rounds(optimizers: list[int]) -> list[tuple[int, ...]]:
    ones = [1] * len(optimizers)
    rows = Rows(optimizers=optimizers, backwards=ones, inner_steps=[0] * len(optimizers))
    return [one.optimizers for one in fold_rounds(rows)]


def test_loops_in_turns_have_a_step_for_each_update() -> None:
    optimizers = ([0] * 6 + [1] * 4) * 3
    assert rounds(optimizers) == [(one,) for one in optimizers]


@pytest.mark.parametrize(
    ("optimizers", "num"),
    [
        pytest.param([0, 1] * 5, 5, id="GAN"),
        pytest.param([0, 0, 0, 0, 0, 1] * 3, 15, id="a critic that steps five times"),
        pytest.param(([0] * 6 + [1] * 4) * 2 + [0, 1], 18, id="together once"),
    ],
)
def test_others_have_rounds(optimizers: list[int], num: int) -> None:
    assert len(rounds(optimizers)) == num
