"""The levers that remove padding, in the user's process: what a trial tells, does and proves."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from end_to_end.harness import (
    SPECIMENS,
    fork_bare,
    needs_linux,
    needs_torch,
    rows,
    run_folder,
    run_forked,
)
from steptime.levers import file_of, load
from steptime.tune.run_study import run_study
from steptime.tune.study_options import StudyOptions
from steptime.tune.values.study_values import StudyOutcome

pytestmark = [needs_torch, needs_linux]

SCRIPT = SPECIMENS / "padded_texts.py"
TRIM = {"multiple_of": 1}
GROUP = {"window": 16, "trims": True}


def plan(mode: str, *levers: tuple[str, Mapping[str, Any]]) -> dict[str, Any]:
    asked = [{"name": n, "settings": dict(s), "file": file_of(load(n))} for n, s in levers]
    plain = {"schema": 1, "is_live": False, "quality": None, "probe": mode == "trial"}
    return plain | {"mode": mode, "levers": asked}


def tried(folder: Path, asked: dict[str, Any], *words: str) -> tuple[float, list[Any]]:
    """The loss that the specimen ends with under a plan, and its rows."""
    folder.mkdir()
    (folder / "plan.json").write_text(json.dumps(asked))
    variables = {"STEPTIME_PLAN": str(folder / "plan.json")}
    done = run_forked(folder, "python", SCRIPT, *words, **variables)
    assert done.exit_code == 0, done.stderr.decode()
    return float(done.stdout.split()[-1]), rows(run_folder(folder) / "rank-0.jsonl")


def seen(found: Sequence[Any], kind: str) -> list[Any]:
    return [row for row in found if row["k"] == kind]


def test_a_trial_tells_how_much_is_padding_and_whether_the_model_draws(tmp_path: Path) -> None:
    loss, found = tried(tmp_path / "tried", plan("trial"), "--steps", "24")
    bare = fork_bare(tmp_path / "bare", "python", SCRIPT, "--steps", "24").finish()

    assert float(bare.stdout.split()[-1]) == loss
    early, *_, late = [row["facts"] for row in seen(found, "facts")]
    (loader,) = late["loaders"]
    padding = loader["padding"]
    assert early["loaders"][0]["padding"]["num_batches"] < padding["num_batches"] == 16
    assert (padding["side"], padding["is_fixed"]) == ("right", True)
    assert padding["useful_fraction"] == pytest.approx(22 / 96, rel=0.1)
    assert padding["longest_fraction"] == pytest.approx(39 / 96, rel=0.1)
    assert padding["useful_fraction"] < padding["grouped_fraction"] < padding["longest_fraction"]
    assert (loader["is_shuffled"], loader["lengths_from"]) == (True, "rows")
    assert (late["draws_in_calls"], late["sample_unit"]) == (False, "tokens")


def test_with_dropout_the_model_is_seen_to_draw(tmp_path: Path) -> None:
    words = ("--steps", "6", "--dropout", "0.1")
    _, found = tried(tmp_path / "tried", plan("trial"), *words)

    assert seen(found, "facts")[-1]["facts"]["draws_in_calls"] is True


@pytest.mark.parametrize("mode", ["trial", "recipe"])
def test_trimmed_the_training_ends_where_it_ended(tmp_path: Path, mode: str) -> None:
    bare = fork_bare(tmp_path / "bare", "python", SCRIPT).finish()
    loss, found = tried(tmp_path / "tried", plan(mode, ("trim_padding", TRIM)))

    assert loss == pytest.approx(float(bare.stdout.split()[-1]), rel=1e-3)
    (line,) = seen(found, "lever")
    assert (line["name"], line["error"]) == ("trim_padding", None)


def test_a_batch_counts_as_many_tokens_trimmed_as_padded(tmp_path: Path) -> None:
    def tokens(name: str, *levers: tuple[str, Mapping[str, Any]]) -> list[int]:
        _, found = tried(tmp_path / name, plan("trial", *levers), "--steps", "12")
        return [row[-1] for line in seen(found, "t") for row in line["rows"]]

    assert tokens("padded") == tokens("trimmed", ("trim_padding", TRIM))


def test_grouped_the_training_goes_on_as_long(tmp_path: Path) -> None:
    loss, found = tried(tmp_path / "tried", plan("recipe", ("length_grouping", GROUP)))

    assert 0.0 < loss < 2.0
    assert seen(found, "lever")[0]["error"] is None


@pytest.mark.slow("a whole study: a baseline, pairs of processes and the runs that prove it")
@pytest.mark.serial
def test_tune_proves_that_trimming_pays(tmp_path: Path) -> None:
    words = ("--steps", "100000", "--length", "256")
    options = StudyOptions(
        command=(sys.executable, str(SCRIPT), *words),
        store=tmp_path,
        levers=(load("trim_padding"),),
        budget_s=240.0,  # two trials, then pairs of processes that each start torch
        allow_unsafe=True,
    )
    study = run_study(options, progress=lambda told: None)

    assert study.outcome is StudyOutcome.FASTER
    assert [one.name for one in study.recipe] == ["trim_padding"]
    assert study.speedup is not None
    assert study.speedup.low > 1.5
    assert study.quality is not None
    assert study.quality.level == "L2"
