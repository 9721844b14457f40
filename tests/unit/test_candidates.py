"""Levers that change the training: their recipes, and the line that proves each over seeds."""

from __future__ import annotations

import shlex
from dataclasses import replace
from io import StringIO

from rich.console import Console

from steptime.cli.main import build_parser
from steptime.levers import load
from steptime.levers.examples import CPU
from steptime.report.blocks.study.study_report import study_report
from steptime.report.text.paint_text import print_report
from steptime.report.words.study.unproven_words import proof_lines
from steptime.tune.recipe.candidates import write_candidates
from steptime.tune.recipe.recipe_file import read_recipe
from steptime.tune.recipe.recipe_setup import set_up
from steptime.tune.values.study_values import NEEDS_PROOF, NotTried
from study_cases import nothing_helps

LEVER = load("gradient_transform")


def written(folder):
    study = replace(nothing_helps(), not_tried=(NotTried(name=LEVER.name, reason=NEEDS_PROOF),))
    made = write_candidates(study, {LEVER.name: LEVER.space(CPU)}, folder=folder, cwd=folder)
    return replace(study, not_tried=made)


def test_each_setting_has_a_recipe_that_claims_nothing(tmp_path):
    study = written(tmp_path)

    paths = sorted((tmp_path / "candidates").iterdir())
    assert len(paths) == len(LEVER.space(CPU))
    recipe = read_recipe(tmp_path / "candidates" / "gradient_transform.toml")
    assert str(tmp_path / "candidates" / "gradient_transform.toml") == study.not_tried[0].candidate
    assert recipe.levers[0].settings == LEVER.space(CPU)[0]
    assert (recipe.proof.quality.value, recipe.proof.speedup) == ("INCONCLUSIVE", None)
    assert "Nothing has proven it" in paths[0].read_text()
    assert set_up(recipe, path="x.toml", differences=(), libraries={}).plan is not None


def test_the_report_gives_the_line_that_proves_it(tmp_path):
    study = written(tmp_path)
    console = Console(file=StringIO(), width=100)
    print_report(study_report(study), console=console)
    ((name, line),) = proof_lines(study)

    words = shlex.split(line)
    options = build_parser().parse_args(words[1:])
    assert name == "gradient_transform"
    assert options.reference == shlex.join(study.command)
    assert study.not_tried[0].candidate in shlex.split(options.candidate)
    assert line in console.file.getvalue()
    assert "needs proof over seeds" in " ".join(console.file.getvalue().split())
