"""`tune --prove`: a recipe judged over seeds, by trainings as written and with it."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from end_to_end.harness import needs_linux
from steptime.app.study.tune import _with_recipe, tune_command
from steptime.app.verify.prove_training import ProofOptions, prove_study
from steptime.cli.main import main
from steptime.cli.study.tune import exit_code_of
from steptime.core.codec import from_json, to_json
from steptime.core.devices.machine_identity import MachineIdentity
from steptime.errors import ScriptFailedError
from steptime.report.blocks.study.study_report import study_report
from steptime.report.text.paint_text import print_report
from steptime.tune.recipe.recipe_file import (
    RECIPE,
    make_recipe,
    read_recipe,
    write_recipe,
)
from steptime.tune.study_options import StudyOptions
from steptime.tune.values.recipe_values import Script
from steptime.tune.values.study_values import Study
from steptime.verify.values.seed_runs import Margin, TrainingQuestion
from study_cases import faster, on

pytest.importorskip("scipy")

# With the recipe's variable, it ends worse by what the first argument says.
SCRIPT = """
import os, random, sys
worse = float(sys.argv[1]) * ("MALLOC_MMAP_THRESHOLD_" in os.environ)
end = random.gauss(1.0, 0.001) + worse
for step in range(1, 6):
    print(f"loss {end + 0.2 * (1 - step / 5):.9f}")
"""


def keep(found: Study, store: Path) -> Path:
    """Leave a study and its recipe as `tune` does; return the folder."""
    folder = store / ".steptime" / "studies" / found.study_id
    folder.mkdir(parents=True)
    (folder / "study.json").write_text(json.dumps(to_json(found)))
    machine = MachineIdentity(cpu="x", num_cores=1, memory_bytes=1)
    script = Script(command=found.command)
    write_recipe(folder / RECIPE, make_recipe(found, script=script, machine=machine))
    return folder


@needs_linux
@pytest.mark.parametrize(("worse", "outcome", "code"), [(0.0, "PASS", 0), (0.4, "FAIL", 5)])
def test_a_recipe_is_judged_over_seeds(worse, outcome, code, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(SCRIPT)
    levers = (on("return_freed_memory"),)
    found = replace(faster(), command=(sys.executable, "train.py", str(worse)), recipe=levers)
    folder = keep(found, tmp_path)
    question = TrainingQuestion(margin=Margin(amount=0.05))
    proof = ProofOptions(metric="loss ([0-9.]+)", question=question, num_seeds=3)

    proven = prove_study(found, folder, proof, store=tmp_path, tell=lambda _: None)

    assert proven.seeds.outcome.value == outcome
    assert proven.seeds.estimate == pytest.approx(-worse, abs=0.01)
    stored = from_json(Study, json.loads((folder / "study.json").read_text()))
    assert stored.seeds.outcome.value == outcome
    kept = read_recipe(folder / RECIPE).proof
    assert (kept.seeds.value, kept.seeds_n, kept.seeds_margin) == (outcome, 3, 0.05)
    assert exit_code_of(proven, require_speedup=None) == code
    handed = _with_recipe(proven, tmp_path / "tuned.toml")
    assert (handed.recipe_file is None) == (outcome == "FAIL")  # what loses is not handed over
    out = StringIO()
    print_report(study_report(proven), console=Console(file=out, width=120))
    assert f"over seeds {outcome}: the candidate" in out.getvalue()
    assert ("run --recipe" in out.getvalue()) == (outcome == "PASS")


@needs_linux
def test_where_a_training_fails_under_the_proof_what_was_found_is_kept(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text("raise SystemExit('no data')")
    command = (sys.executable, "train.py")
    found = replace(faster(), command=command, recipe=(on("return_freed_memory"),))
    folder = keep(found, tmp_path)
    monkeypatch.setattr("steptime.app.study.tune.run_study", lambda *_, **__: found)
    question = TrainingQuestion(margin=Margin(amount=0.05))
    asked = StudyOptions(command=command, store=tmp_path, levers=(), output=Path("mine.toml"))

    tuned = tune_command(
        asked,
        progress=lambda _: None,
        proof=ProofOptions(metric="loss ([0-9.]+)", question=question),
    )

    assert isinstance(tuned.failure, ScriptFailedError)
    assert tuned.recipe_file == folder / RECIPE
    assert tuned.study is found
    assert not Path("mine.toml").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--prove", "--margin", "1%"], "--prove needs a margin and a metric"),
        (["--margin", "1%"], "--margin needs --prove"),
        (["--prove", "--margin", "x", "--metric", "l (.)"], "--margin must be a number above 0"),
        (["--prove", "--margin", "1", "--metric", "loss"], "has no group"),
        (["--prove", "--margin", "1", "--metric", "(.)", "--seeds", "1"], "--seeds must be 2"),
    ],
)
def test_a_proof_says_what_it_lacks_before_the_study_begins(words, said, capsys):
    assert main(["tune", *words, "--", "python", "train.py"]) == 2
    assert said in capsys.readouterr().err


ARMS = ("--reference", "true {seed}", "--candidate", "true {seed}")


@pytest.mark.parametrize(
    "words",
    [
        ("tune", "--prove", "--margin", "1", "--metric", "(.)", "--", sys.executable, "train.py"),
        ("verify", "training", "--margin", "1", "--metric", "(.)", *ARMS),
    ],
    ids=["tune", "verify"],
)
def test_a_judge_that_is_not_installed_is_missed_before_anything_runs(
    words, capsys, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text("")
    monkeypatch.setitem(sys.modules, "scipy", None)
    for place in ("study.tune.run_study", "verify.verify_training.make_run"):
        monkeypatch.setattr(f"steptime.app.{place}", lambda *_, **__: pytest.fail("it runs"))

    assert main(list(words)) == 2
    assert "pip install 'steptime[verify]'" in capsys.readouterr().err
