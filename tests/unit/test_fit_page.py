"""The page of a fit."""

from __future__ import annotations

import json
from dataclasses import replace

from steptime.cli.main import main
from steptime.core.codec import to_json
from steptime.plan.per_device import peaks_per_device
from steptime.report.blocks.fit.fit_report import fit_report
from steptime.report.html.paint_html import paint_page
from steptime.report.words.fit.fit_words import describe_ranks
from steptime.tune.fit.held_parts import peaks_by_length
from steptime.tune.values.fit_values import RankPeak
from steptime.verify.values import Outcome
from unit.test_make_fit import GIB, ScriptedFit, search, study_of


def _page(study, **more):
    return paint_page(fit_report(study, **more))


def test_the_page_draws_the_peak_beside_the_limit_and_lists_what_was_run():
    page = _page(study_of(search(ScriptedFit(), 6 * GIB)), recipe="[levers]")

    assert "t does not fit into 6.00 GiB as written; with the recipe it does" in page
    assert page.count("left:") >= 9  # seven parts of the peak, the limit, the run with the recipe
    assert "trained for 18 steps" in page
    assert "PASS: the training is as good as the one as written (level L2)" in page
    assert "[levers]" in page
    assert page.count("h0") == 6  # the peak over the micro-batch


def test_the_page_draws_both_bounds_over_the_length_of_rows():
    study = study_of(search(ScriptedFit(), 6 * GIB))

    page = _page(replace(study, by_length=peaks_by_length({"activations": GIB})))

    assert "opacity:0.2" in page
    assert page.count("h0") == 6 + 6
    assert "2.00 GiB to 4.00 GiB" in page


def test_the_page_lists_what_each_of_several_devices_holds():
    study = study_of(search(ScriptedFit(), 6 * GIB))
    devices = peaks_per_device(study.peak.by_category, 8)

    page = _page(replace(study, devices=devices))

    assert "on 8 devices, the same global batch" in page
    assert "ZeRO-1 (optimizer states cut)" in page
    assert page.count(">fits<") == 4


def test_a_page_without_a_recipe_says_what_is_missing():
    study = study_of(search(ScriptedFit(), GIB), GIB)

    page = _page(study)

    assert "by any setting known here: short by" in page
    assert "<h2>The recipe</h2>" not in page


def test_what_was_not_proven_is_said():
    study = study_of(search(ScriptedFit(outcome=Outcome.INCONCLUSIVE), 6 * GIB))

    assert "INCONCLUSIVE: it cannot be told" in _page(study)


def test_ranks_that_need_as_much_are_named_together():
    ranks = [
        RankPeak(rank=number, estimate=size, low=size, high=size)
        for number, size in enumerate((3 * GIB, GIB, GIB, GIB))
    ]
    study = replace(study_of(search(ScriptedFit(), 6 * GIB)), ranks=tuple(ranks))
    told = "of 4 ranks, tensors of rank 0 3.00 GiB, ranks 1 to 3 1.00 GiB, forecast"

    assert describe_ranks(study) == told
    assert told[1:] in _page(study)
    assert describe_ranks(replace(study, ranks=())) is None


def test_a_fit_is_listed_shown_and_drawn_again(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    study = study_of(search(ScriptedFit(), 6 * GIB))
    folder = tmp_path / ".steptime" / "fits" / "20261120-101500-3fa2"
    folder.mkdir(parents=True)
    (folder / "fit.json").write_text(json.dumps(to_json(study)))

    assert main(["show"]) == 0
    shown = capsys.readouterr().out
    assert "limit" in shown
    assert "steptime run --recipe fit.toml -- " in shown
    assert main(["show", "fit", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["data"]["limit_bytes"] == study.limit_bytes
    assert main(["report", "--no-open"]) == 0
    assert capsys.readouterr().out == f"{folder / 'fit.html'}\n"
    assert main(["list"]) == 0
    assert capsys.readouterr().out.split()[:2] == [folder.name, "fits"]
