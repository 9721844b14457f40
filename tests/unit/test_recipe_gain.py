"""What the recipe of a run gave: against its proof, and against a run without it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from steptime.app.stored.load import load_run
from steptime.app.stored.recipe_gain import find_gain
from steptime.core.codec import to_json
from steptime.core.interval import Interval
from steptime.core.store import Run, read_value, write_value
from steptime.measure.values.machine_load import HostLoad
from steptime.measure.values.measurement import (
    Measurement,
)
from steptime.measure.values.observations import Difference, LeverUse, RecipeUse
from steptime.report.blocks.run.finding_blocks import describe_gain
from steptime.report.document.run_document import RecipeGain
from unit.builders import make_end, make_head, make_update, write_run

USE = RecipeUse(
    path="tuned.toml",
    study_id="s",
    speedup=Interval(estimate=1.52, low=1.47, high=1.58, n=8),
    levers=(LeverUse(name="fused_optimizer", settings={}, is_in_guest=False),),
    written_step_s=0.015,
    proven_step_s=0.0101,
)


def make(
    store: Path, number: int, step_ms: float, use: RecipeUse | None = None, others: float = 0.0
) -> Run:
    """A run of 40 steps, which take so long on average, beside so many busy cores."""
    run_id = f"20261120-1015{number:02}-3fa2"
    folder = store / ".steptime" / "runs" / run_id
    folder.parent.mkdir(parents=True, exist_ok=True)
    times = [{"forward": step_ms + 0.02 * (k % 5 - 2)} for k in range(40)]
    lines = [make_head(), *(make_update(k, one) for k, one in enumerate(times)), make_end(40)]
    recipe: Any = None if use is None else to_json(use)
    command = {"run_id": run_id, "started_unix_s": 1000.0 + number, "recipe": recipe}
    write_run(folder, {"rank-0.jsonl": lines}, **command)
    run = Run(run_id=run_id, folder=folder)
    load = HostLoad(num_cores=4, job_cores=1.0, others_cores=others, num_samples=9)
    write_value(run, "measurement.json", replace(load_run(run).measurement, host=load))
    return run


def gain(run: Run) -> RecipeGain | None:
    return find_gain(run, read_value(run, "measurement.json", Measurement))


def test_a_run_without_a_recipe_gave_nothing(tmp_path: Path) -> None:
    assert gain(make(tmp_path, 1, 10.0)) is None


def test_the_step_is_compared_with_the_step_as_written_in_the_proof(tmp_path: Path) -> None:
    found = gain(make(tmp_path, 1, 10.0, USE))

    assert found is not None
    assert (found.missing, found.written_step_s, found.proven_step_s) == (None, 0.015, 0.0101)
    assert found.against_proof is not None
    assert found.against_proof.estimate == pytest.approx(1.5, rel=0.01)
    assert found.against_proof.low <= found.against_proof.estimate <= found.against_proof.high
    assert (found.plain_run_id, found.against_runs) == (None, None)
    text = describe_gain(found)
    assert "1.50x" in text
    assert "15.0 ms as written when it was proven, at another time" in text
    assert "no finished run of this command without a recipe" in text


@pytest.mark.parametrize(
    ("use", "missing", "says"),
    [
        (
            replace(USE, differences=(Difference(what="num_cores", proven=2, here=4),)),
            "differs",
            "not as it was proven",
        ),
        (
            replace(USE, levers=(replace(USE.levers[0], error="x"),)),
            "levers_off",
            "not all of its levers were on",
        ),
        (replace(USE, written_step_s=None), "no_step_times", "does not hold the step times"),
    ],
)
def test_where_the_proof_says_nothing_there_is_a_reason(
    tmp_path: Path, use: RecipeUse, missing: str, says: str
) -> None:
    found = gain(make(tmp_path, 1, 10.0, use))

    assert found is not None
    assert (found.against_proof, found.missing) == (None, missing)
    assert says in describe_gain(found)


def test_one_plain_run_gives_a_ratio_without_an_interval(tmp_path: Path) -> None:
    plain = make(tmp_path, 1, 14.0)
    make(tmp_path, 2, 9.0, replace(USE, study_id="another"))

    found = gain(make(tmp_path, 3, 10.0, USE))

    assert found is not None
    assert found.plain_run_id == plain.run_id
    assert found.against_runs == pytest.approx(1.4, rel=0.01)
    assert (found.against_runs_low, found.against_runs_high) == (None, None)
    assert (found.num_plain_runs, found.num_recipe_runs) == (1, 1)
    assert "too few runs to say how much runs differ" in describe_gain(found)


def test_runs_beside_another_load_are_not_compared(tmp_path: Path) -> None:
    make(tmp_path, 1, 14.0, others=2.0)
    make(tmp_path, 2, 30.0, USE, others=2.0)

    quiet = gain(make(tmp_path, 3, 10.0, USE, others=0.1))
    busy = gain(make(tmp_path, 4, 10.0, USE, others=1.8))

    assert quiet is not None
    assert busy is not None
    assert (quiet.against_runs, quiet.missing) == (None, None)
    assert "beside as busy a machine" in describe_gain(quiet)
    assert (busy.num_plain_runs, busy.num_recipe_runs) == (1, 2)
    assert (busy.against_proof, busy.missing) == (None, "busy")
    assert "other processes kept the machine busy" in describe_gain(busy)


def test_repeats_give_it_an_interval(tmp_path: Path) -> None:
    for number in range(4):
        make(tmp_path, number, 14.0 + 0.1 * number)
        make(tmp_path, 10 + number, 10.0 + 0.1 * number, USE)

    found = gain(make(tmp_path, 20, 10.1, USE))

    assert found is not None
    assert (found.num_plain_runs, found.num_recipe_runs) == (4, 5)
    assert found.against_runs_low is not None
    assert found.against_runs_high is not None
    assert found.against_runs is not None
    assert 1.3 < found.against_runs_low < found.against_runs < found.against_runs_high < 1.5
    assert "5 runs with it have 1.40x (" in describe_gain(found)


def test_a_run_of_another_command_or_folder_is_no_baseline(tmp_path: Path) -> None:
    other = make(tmp_path, 1, 14.0)
    text = (other.folder / "command.json").read_text()
    (other.folder / "command.json").write_text(text.replace("/home/me/project", "/home/me/other"))

    found = gain(make(tmp_path, 3, 10.0, USE))

    assert found is not None
    assert found.plain_run_id is None
