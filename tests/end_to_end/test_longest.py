"""The largest batch of an epoch is named before it comes; who dies in it says so."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from end_to_end.conftest import RunSpecimen, SpecimenRun
from end_to_end.harness import SPECIMENS, needs_linux, needs_torch, run_observed

pytestmark = [needs_torch, needs_linux]


def longest(run: SpecimenRun) -> dict[str, Any]:
    found = run.data["longest_batch"]
    assert found is not None
    return dict(found)


def came_in(run: SpecimenRun) -> int | None:
    """The batch in which the long text came, as the script itself says."""
    found = re.search(r"came in batch (\d+)", run.stdout)
    return None if found is None else int(found[1])


@pytest.mark.parametrize("workers", [0, 1])
def test_the_planted_text_is_named_before_it_comes(run_specimen: RunSpecimen, workers: int) -> None:
    how = ("--seed", "4", "--plant", "171", "--workers", str(workers))
    early = run_specimen("long_sample", "--steps", "16", *how)
    whole = run_specimen("long_sample", "--steps", "100", *how)

    told = longest(early)
    assert came_in(early) is None
    assert told["is_to_come"] is True
    assert told["largest"]["sample"] == 171
    assert told["largest"]["batch"] == came_in(whole)
    assert longest(whole)["is_to_come"] is False


def test_the_peak_of_its_step_lies_in_the_forecast(run_specimen: RunSpecimen) -> None:
    how = ("--in-order", "--plant", "380")
    early = longest(run_specimen("long_sample", "--steps", "40", *how))
    whole = run_specimen("long_sample", "--steps", "100", *how).data["memory"]["run_peak"]

    assert early["is_to_come"]
    assert early["largest"]["batch"] == whole["step"] == 95
    assert early["peak"]["low"] <= whole["bytes"] <= early["peak"]["high"]


def test_of_iterable_data_nothing_is_promised(run_specimen: RunSpecimen) -> None:
    told = longest(run_specimen("long_sample", "--steps", "16", "--iterable"))

    assert (told["missing"], told["largest"], told["is_to_come"]) == ("iterable", None, None)


def test_a_death_names_its_batch_its_limit_and_the_last_steps(run_specimen: RunSpecimen) -> None:
    how = ("--in-order", "--plant", "90", "--steps", "40", "--long", "4096", "--limit", "150")
    run = run_specimen("long_sample", *how, exit_code=1)

    told, death = longest(run), run.data["memory"]["death"]
    assert told["last"]["batch"] == told["largest"]["batch"] == 22
    assert told["last"]["sample"] == 90
    assert 150 << 20 < death["limit_bytes"] < 4 << 30
    assert death["snapshot"] is None
    steps = death["last_steps"]
    assert [one["step"] for one in steps] == list(range(17, 22))
    assert all(one["peak_bytes"] or one["peak_bytes"] is None for one in steps)


def test_a_trial_under_a_limit_hands_out_the_largest_batch(tmp_path: Path) -> None:
    """As `steptime fit` asks for: a text that would come last comes in the second batch."""
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"schema": 1, "mode": "trial", "levers": [], "largest": True}))
    command = (sys.executable, SPECIMENS / "long_sample.py", "--in-order", "--plant", "399")

    done = run_observed(tmp_path, *command, "--steps", "4", STEPTIME_PLAN=str(plan))

    assert done.exit_code == 0, done.stderr.decode()
    came = re.findall(r"came in batch (\d+)", done.stdout.decode())
    assert came == ["1", "2", "3"]
