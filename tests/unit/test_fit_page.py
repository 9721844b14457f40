"""The page of a fit."""

from __future__ import annotations

import json
from dataclasses import replace

from steptime.cli.main import main
from steptime.core.codec import to_json
from steptime.plan.per_device import peaks_per_device
from steptime.report.html.html_fit import render_fit_page
from steptime.report.words.fit_words import describe_ranks
from steptime.tune.fit.held_parts import peaks_by_length
from steptime.tune.values.fit_values import RankPeak
from steptime.verify.values import Outcome
from unit.test_make_fit import GIB, ScriptedFit, search, study_of


def test_the_page_draws_the_peak_beside_the_limit_and_lists_what_was_run():
    page = render_fit_page(study_of(search(ScriptedFit(), 6 * GIB)), recipe="[levers]")

    assert "it does not fit into 6.00 GiB as written; with the recipe it does" in page
    assert page.count("<rect") == 8  # seven parts of the peak, and the run with the recipe
    assert "stroke-dasharray" in page
    assert "trained for 18 steps" in page
    assert "PASS: the training is as good as the one as written (level L2)" in page
    assert "[levers]" in page
    assert page.count("<circle") == 6  # the peak over the micro-batch


def test_the_page_draws_both_bounds_over_the_length_of_rows():
    study = study_of(search(ScriptedFit(), 6 * GIB))

    page = render_fit_page(replace(study, by_length=peaks_by_length({"activations": GIB})))

    assert "<polygon" in page
    assert page.count("<circle") == 6 + 12
    assert "2.00 GiB to 4.00 GiB" in page


def test_the_page_lists_what_each_of_several_devices_holds():
    study = study_of(search(ScriptedFit(), 6 * GIB))
    devices = peaks_per_device(study.peak.by_category, 8)

    page = render_fit_page(replace(study, devices=devices))

    assert "8 devices share the same global batch" in page
    assert "ZeRO-1 (optimizer states cut)" in page
    assert page.count(">fits<") == 4


def test_a_page_without_a_recipe_says_what_is_missing():
    study = study_of(search(ScriptedFit(), GIB), GIB)

    page = render_fit_page(study)

    assert "by any setting known here: short by" in page
    assert "<h2>The recipe</h2>" not in page


def test_what_was_not_proven_is_said():
    study = study_of(search(ScriptedFit(outcome=Outcome.INCONCLUSIVE), 6 * GIB))

    assert "INCONCLUSIVE: it cannot be told" in render_fit_page(study)


def test_ranks_that_need_as_much_are_named_together():
    ranks = [
        RankPeak(rank=number, estimate=size, low=size, high=size)
        for number, size in enumerate((3 * GIB, GIB, GIB, GIB))
    ]
    study = replace(study_of(search(ScriptedFit(), 6 * GIB)), ranks=tuple(ranks))
    told = "of 4 ranks, tensors of rank 0 3.00 GiB, ranks 1 to 3 1.00 GiB, forecast"

    assert describe_ranks(study) == told
    assert told[1:] in render_fit_page(study)
    assert describe_ranks(replace(study, ranks=())) is None


def test_a_fit_is_listed_shown_and_drawn_again(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    study = study_of(search(ScriptedFit(), 6 * GIB))
    folder = tmp_path / ".steptime" / "fits" / "20261120-101500-3fa2"
    folder.mkdir(parents=True)
    (folder / "fit.json").write_text(json.dumps(to_json(study)))

    assert main(["show"]) == 0
    assert "limit" in capsys.readouterr().out
    assert main(["show", "fit", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["data"]["limit_bytes"] == study.limit_bytes
    assert main(["report", "--no-open"]) == 0
    assert capsys.readouterr().out == f"{folder / 'fit.html'}\n"
    assert main(["list"]) == 0
    assert capsys.readouterr().out.split()[:2] == [folder.name, "fits"]
