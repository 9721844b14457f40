"""Which runs a judgement makes; what they say is `verify`'s."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from steptime.levers.base import Facts, Preserves
from steptime.tune.search.budget import judged_updates
from steptime.tune.trials.judging import Claim, claim_of, judge_state
from steptime.tune.trials.trial_process import TrialEnded
from steptime.tune.values.study_values import Applied, State, TrialEnd
from steptime.verify.protocol import RunRequest
from steptime.verify.values import Outcome
from unit.test_tune_live import make_lever

FACTS = Facts(torch_version="2.13.0")
EXACT = make_lever("exact")
ROUNDING = replace(
    make_lever("rounding"), preserves=Preserves.NUMERIC, roundoff=lambda settings: 2.0**-8
)
DRAWING = replace(
    make_lever("drawing"),
    preserves=Preserves.STATISTICAL,
    class_here=lambda facts, settings: Preserves.EXACT if settings.get("same") else None,
)
LEVERS = {lever.name: lever for lever in (EXACT, ROUNDING, DRAWING)}


def on(*names: str) -> State:
    return tuple(Applied(name=name, settings={}) for name in names)


@pytest.mark.parametrize(
    ("state", "preserves"),
    [
        ((), Preserves.EXACT),
        (on("exact"), Preserves.EXACT),
        (on("exact", "rounding"), Preserves.NUMERIC),
        (on("drawing", "rounding", "exact"), Preserves.STATISTICAL),
    ],
)
def test_the_weakest_lever_decides_the_class(state: State, preserves: Preserves) -> None:
    assert claim_of(state, LEVERS, FACTS).preserves is preserves


def test_a_lever_may_preserve_more_here() -> None:
    state = (Applied(name="drawing", settings={"same": True}),)

    assert claim_of(state, LEVERS, FACTS).preserves is Preserves.EXACT


def test_the_largest_roundoff_counts() -> None:
    assert claim_of(on("rounding", "exact"), LEVERS, FACTS).roundoff == 2.0**-8


@pytest.mark.parametrize(("step_s", "updates"), [(0.001, 200), (0.1, 100), (5.0, 20)])
def test_slow_scripts_are_recorded_for_fewer_updates(step_s: float, updates: int) -> None:
    assert judged_updates(step_s, 600.0) == updates


class Runs:
    """Makes no run, and writes down which were asked for."""

    def __init__(self, folder: Path, end: TrialEnd) -> None:
        self._folder = folder
        self._ended = TrialEnded(end=end, reason="exit_code")
        self.names: list[str] = []

    def __call__(self, request: RunRequest, path: Path | None) -> tuple[Path, TrialEnded]:
        self.names.append(request.name)
        place = path or self._folder / "candidate"
        place.mkdir(parents=True)
        return place, self._ended


def test_a_candidate_whose_run_fails_is_refused_at_once(tmp_path: Path) -> None:
    runs = Runs(tmp_path, TrialEnd.FAILED)
    claim = Claim(preserves=Preserves.EXACT, roundoff=2.0**-24)

    verdict = judge_state(claim, runs, tmp_path / "quality", updates=20)

    assert verdict.outcome is Outcome.FAIL
    assert [(check.name, check.detail) for check in verdict.checks] == [("run", "exit_code")]
    assert runs.names == ["baseline", "again", "candidate"]


def test_a_lever_that_changes_the_training_needs_no_run(tmp_path: Path) -> None:
    runs = Runs(tmp_path, TrialEnd.FINISHED)
    claim = Claim(preserves=Preserves.NOTHING, roundoff=2.0**-24)

    assert judge_state(claim, runs, tmp_path, updates=20).outcome is Outcome.FAIL
    assert runs.names == []
