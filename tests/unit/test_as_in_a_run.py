"""A baseline that is slower in a trial than under `steptime run` is refused, and no other."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest

from steptime.tune.study.study_folder import open_study
from steptime.tune.trials import as_in_a_run
from steptime.tune.trials.as_in_a_run import refuse_pretence
from steptime.tune.trials.observe_baseline import ParentFacts
from steptime.tune.trials.process_pairs import Side
from steptime.tune.trials.real_bench import RealBench, Subject
from steptime.tune.values.study_values import WELL, Ending, TrialEnd


def side(step_s: float | None) -> Side:
    return Side(ending=WELL, step_s=step_s)


def pairs(*times_s: tuple[float | None, float | None]) -> list[tuple[Side, Side]]:
    return [(side(trial_s), side(run_s)) for trial_s, run_s in times_s]


@pytest.mark.parametrize(
    "times_s",
    [
        [(0.030, 0.010), (0.029, 0.011)],
        [(0.013, 0.010)] * 6,
        [(0.030, 0.010), (0.031, None), (0.029, 0.011)],
    ],
)
def test_a_slower_trial_is_refused_with_both_times(
    times_s: Sequence[tuple[float | None, float | None]],
) -> None:
    refused = refuse_pretence(pairs(*times_s))

    assert refused is not None
    assert (refused.end, refused.reason) == (TrialEnd.FAILED, "slower_in_trials")
    assert refused.facts is not None
    assert refused.facts["trial_s"] > refused.facts["run_s"]  # type: ignore[operator]


@pytest.mark.parametrize(
    "times_s",
    [
        [],
        [(0.030, 0.010)],  # of one pair nobody knows how much equal processes differ
        [(0.0105, 0.010)] * 6,
        [(0.010, 0.030)] * 6,  # a claim gets no larger by it
        [(0.030, 0.010), (0.010, 0.010), (0.030, 0.010)],
        [(0.030, 0.010), (0.009, 0.003)],  # two equal ones differ by as much
        [(0.0007, 0.0003)] * 6,  # what the guest itself does in a trial
        [(None, 0.010)] * 6,
    ],
)
def test_no_other_is(times_s: Sequence[tuple[float | None, float | None]]) -> None:
    assert refuse_pretence(pairs(*times_s)) is None


class Bench(RealBench):
    """Its processes are made up: a trial takes `trial_s` a step, a run 10 ms; each lasts 5 s."""

    def __init__(self, folder: Path, *, trial_s: float, budget_s: float) -> None:
        surroundings = ParentFacts(cwd=folder, libraries={}, environment_names=())
        subject = Subject(
            argv=("x",), environment={}, levers={}, surroundings=surroundings, budget_s=budget_s
        )
        study = open_study(folder, "key", budget_s=budget_s)
        super().__init__(subject, study, begin=None, quiet=lambda: None)  # type: ignore[arg-type]
        self.trial_s, self.now_s, self.turns = trial_s, 0.0, ""

    def _run_side(self, state: Any, size: Any = None, *, plans: bool = True) -> Side:
        self.now_s += 5.0
        self.turns += "T" if plans else "R"
        return side(self.trial_s if plans else 0.010)


def held(bench: Bench, *, ending: Ending = WELL, startup_s: float = 13.0) -> Ending:
    step = SimpleNamespace(estimate=bench.trial_s)
    measurement = SimpleNamespace(steady=SimpleNamespace(step_time_s=step))
    baseline = SimpleNamespace(ending=ending, startup_s=startup_s, measurement=measurement)
    clock = SimpleNamespace(monotonic=lambda: bench.now_s)
    with (
        patch("steptime.tune.trials.real_bench.time", clock),
        patch("steptime.tune.trials.real_bench.replace", lambda _, **new: SimpleNamespace(**new)),
    ):
        found = bench._held_against_a_run(baseline)  # type: ignore[arg-type]
    return found.ending


@pytest.mark.parametrize(
    ("trial_s", "budget_s", "reason", "turns"),
    [
        (0.030, 900.0, "slower_in_trials", "TRRTTRRTTRRT"),
        (0.010, 900.0, None, "TRRT"),  # more could not show it
        (0.030, 700.0, "slower_in_trials", "TRRTTRRTTRRT"),
        (0.030, 300.0, None, ""),  # two pairs would take more than a tenth
    ],
)
def test_it_is_held_against_a_run_in_turns_and_in_a_tenth_of_the_budget(
    tmp_path: Path, trial_s: float, budget_s: float, reason: str | None, turns: str
) -> None:
    bench = Bench(tmp_path, trial_s=trial_s, budget_s=budget_s)

    assert held(bench).reason == reason
    assert bench.turns == turns
    assert bench.now_s <= as_in_a_run.SHARE * budget_s


def test_a_script_that_starts_soon_has_six_pairs_where_it_seems_slower(
    tmp_path: Path,
) -> None:
    bench = Bench(tmp_path, trial_s=0.03, budget_s=600.0)

    assert held(bench, startup_s=2.0).reason == "slower_in_trials"
    assert bench.turns == "TRRTTRRTTRRT"


def test_a_command_that_fails_is_not_held_against_anything(tmp_path: Path) -> None:
    bench = Bench(tmp_path, trial_s=0.03, budget_s=900.0)

    assert held(bench, ending=Ending(end=TrialEnd.FAILED, reason="signal")).reason == "signal"
    assert bench.turns == ""
