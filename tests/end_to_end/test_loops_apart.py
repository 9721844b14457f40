"""Several loops of one process, Hogwild's processes, and a trainer with an optimizer of its own."""

from __future__ import annotations

from typing import Any

import pytest

from end_to_end.conftest import RunSpecimen, SpecimenRun
from end_to_end.harness import SPECIMENS, needs_linux, needs_torch

pytestmark = [needs_torch, needs_linux]

STEP, FIRST, SECOND = (
    next(number for number, line in enumerate(lines, 1) if line.endswith(f"# {word}"))
    for lines in [(SPECIMENS / "two_loops.py").read_text().splitlines()]
    for word in ("step", "first", "second")
)


def loops(run: SpecimenRun) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = run.data["loops"]
    assert sum(one["num_steps"] for one in found) == run.data["num_steps"]
    return found


@pytest.mark.parametrize("turns", [1, 4])
def test_loops_of_one_process_are_told_apart(run_specimen: RunSpecimen, turns: int) -> None:
    run = run_specimen("two_loops", "--turns", str(turns))

    first, second = loops(run)
    assert (first["num_steps"], second["num_steps"]) == (60, 40)
    assert (first["optimizers"], second["optimizers"]) == (["Adam"], ["SGD"])
    assert {one["where"].rpartition(":")[2] for one in (first, second)} == {str(STEP)}
    called = [one["called_at"].rpartition(":")[2] for one in (first, second)]
    assert called == [str(FIRST), str(SECOND)]
    assert (first["is_shown"], second["is_shown"]) == (False, True)
    assert second["phases"]["other"] > 0.5
    # The sleep before a turn of the other loop lies in that loop's first step.
    assert second["total_s"] > (41 - turns) * 0.050


@pytest.mark.parametrize("turns", [1, 4])
def test_the_measurement_is_of_the_longest_loop(run_specimen: RunSpecimen, turns: int) -> None:
    data = run_specimen("two_loops", "--turns", str(turns)).data

    steady = data["steady"]
    assert steady["num_other_loops"] == 60
    assert 0 < steady["num_steps"] <= 40
    assert steady["num_steps"] + steady["num_warmup_steps"] <= 40
    assert steady["step_time_s"]["low"] >= 0.050
    assert data["num_steps"] == data["num_optimizer_updates"] == 100
    # The lines that were walked are of the same loop: an optimizer's step is in one of its steps.
    steps = [one for one in data["sites"] if one["what"] == "optimizer"]
    assert [one["calls_per_step"] for one in steps] == [1.0]


def test_folds_are_one_loop(run_specimen: RunSpecimen) -> None:
    assert run_specimen("folds").data["loops"] == []
    assert run_specimen("folds", "--optimizers", "2").data["loops"] == []


@pytest.mark.parametrize("name", ["gan", "alternating", "actor_critic"])
def test_optimizers_that_take_turns_in_a_step_are_one_loop(
    run_specimen: RunSpecimen, name: str
) -> None:
    assert run_specimen(name).data["loops"] == []


@pytest.mark.slow("spawned children import torch")
def test_each_process_of_hogwild_has_its_own_steps(run_specimen: RunSpecimen) -> None:
    data = run_specimen("hogwild", is_forked=False).data

    lines = (SPECIMENS / "hogwild.py").read_text().splitlines()
    (updates,) = (n for n, line in enumerate(lines, 1) if line.endswith("optimizer.step()"))
    assert [rank["where"].rpartition(":")[2] for rank in data["ranks"]] == [str(updates)] * 2
    assert sorted(rank["num_steps"] for rank in data["ranks"]) == [30, 50]
    assert {rank["world_size"] for rank in data["ranks"]} == {1}
    assert all(rank["num_backwards"] == rank["num_steps"] for rank in data["ranks"])
    assert data["num_steps"] == 50


@pytest.mark.parametrize(("every", "steps"), [(1, 30), (3, 10)])
def test_updates_by_keras_are_steps(run_specimen: RunSpecimen, every: int, steps: int) -> None:
    run = run_specimen("fitted", "--every", str(every))
    data = run.data

    assert (data["num_steps"], data["num_optimizer_updates"]) == (steps, steps)
    assert data["num_backwards"] == 30
    assert data["ranks"][0]["optimizers"] == ["keras.SGD"]  # none of torch's, whatever its name
    assert data["notes"] == []
    assert data["phases"]["optimizer"]["median_s"] > 0
    assert [step.num_updates for step in run.steps()] == [1] * steps
