"""The page of a study on disk: found, written, its losses read from what the trials recorded."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from steptime.app.study import study_page, tune
from steptime.app.study.study_page import folder_of, gather, write_study_page
from steptime.cli import main
from steptime.core.codec import to_json
from steptime.errors import StoreError
from steptime.tune.study_options import StudyOptions
from steptime.tune.values.study_values import State, Study
from steptime.verify.lockstep import check_lockstep
from steptime.verify.recordings import Recording
from steptime.verify.values import Outcome, Verdict
from study_cases import BF16, STUDY_ID, TCMALLOC, faster, nothing_helps, on, trial
from unit.recordings import make_recording, noisy
from unit.test_cli import check_failure, make_run

Capture = pytest.CaptureFixture[str]
FUSED = on("fused_optimizer", implementation="fused")
RECIPE: State = (BF16, FUSED)
RUNS = {
    "baseline": make_recording(),
    "again": make_recording(),
    "double": make_recording(num_updates=4),
    **{f"perturbed-16-{i}": make_recording(change=noisy(1e-6, seed=i)) for i in (1, 2, 3)},
    **{f"perturbed-8-{i}": make_recording(change=noisy(1e-3, seed=i)) for i in (1, 2, 3)},
    **{f"redrawn-{i}": make_recording(change=noisy(0.1, seed=i)) for i in (1, 2, 3)},
}
CANDIDATE = make_recording(change=noisy(1e-3, seed=9))


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tmp").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))


def write_recording(folder: Path, recording: Recording) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (rank,) = recording.ranks
    lines: list[dict[str, Any]] = [{"k": "head", **asdict(rank.head)}]
    lines.append({"k": "first", "unreadable": True})  # tensors are not what a curve needs
    lines += [{"k": "q", **asdict(update)} for update in rank.updates]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (folder / "quality-0.jsonl").write_text(text)


def write_candidate(folder: Path, number: int, state: Sequence[Any], **plan: Any) -> None:
    trials = folder / "trials" / f"{number:03d}"
    write_recording(trials, CANDIDATE)
    listed = [{"name": a.name, "settings": dict(a.settings), "file": "x"} for a in state]
    document = {"schema": 1, "levers": listed, "quality": {"num_updates": 40}, **plan}
    (trials / "plan.json").write_text(json.dumps(document))
    names = {"schema": 1, "levers": sorted(a.name for a in state)}
    (trials / "levers.json").write_text(json.dumps(names))


def judged(others: Sequence[str], *, are_redrawn: bool = False) -> Verdict:
    runs = [RUNS[name] for name in others]
    checks = check_lockstep(RUNS["baseline"], runs, CANDIDATE, are_redrawn=are_redrawn)
    return Verdict(outcome=Outcome.PASS, level="L2", checks=checks)


def study_with(verdict: Verdict) -> Study:
    quality = trial(4, *RECIPE, kind="quality", quality=verdict)
    return replace(faster(), recipe=RECIPE, quality=verdict, trials=(quality,))


def make_folder(store: Path, study: Study) -> Path:
    folder = store / ".steptime" / "studies" / study.study_id
    folder.mkdir(parents=True)
    (folder / "study.json").write_text(json.dumps(to_json(study)))
    (folder / "tuned.toml").write_text("[levers.autocast]\n")
    for name, recording in RUNS.items():
        num = 4 if name == "double" else 40
        write_recording(folder / "quality" / f"{name}-{num}", recording)
    return folder


PERTURBED = [f"perturbed-8-{i}" for i in (1, 2, 3)]


def test_the_losses_of_what_was_judged_lie_over_those_as_written(tmp_path: Path) -> None:
    study = study_with(judged(PERTURBED))
    folder = make_folder(tmp_path, study)
    write_candidate(folder, 3, RECIPE)

    ((state, (curve,)),) = gather(study, folder).losses

    assert state == RECIPE
    assert len(curve.candidate) == len(curve.baseline) == 40


def test_the_trial_is_found_by_its_levers_and_settings(tmp_path: Path) -> None:
    study = study_with(judged(PERTURBED))
    folder = make_folder(tmp_path, study)
    write_candidate(folder, 1, (BF16,))
    write_candidate(folder, 2, (BF16, on("fused_optimizer", implementation="foreach")))
    write_candidate(folder, 3, RECIPE, quality=None)

    assert gather(study, folder).losses == ()


def test_settings_of_the_environment_are_in_no_plan(tmp_path: Path) -> None:
    state: State = (TCMALLOC,)
    quality = trial(4, *state, kind="quality", quality=judged(PERTURBED))
    study = replace(nothing_helps(), trials=(quality,))
    folder = make_folder(tmp_path, study)
    write_candidate(folder, 3, state, levers=[])

    ((found, _),) = gather(study, folder).losses

    assert found == state


def test_damaged_recordings_leave_the_page_without_losses(tmp_path: Path) -> None:
    study = study_with(judged(PERTURBED))
    folder = make_folder(tmp_path, study)
    write_candidate(folder, 3, RECIPE)
    (folder / "quality" / "baseline-40" / "quality-0.jsonl").write_text('{"k": "head"}\n')

    path = write_study_page(study, folder)

    assert gather(study, folder).losses == ()
    assert path.read_text().startswith("<!DOCTYPE html>")


def test_the_recipe_and_the_edits_by_hand_are_on_the_page(tmp_path: Path) -> None:
    study = study_with(judged(PERTURBED))
    facts = gather(study, make_folder(tmp_path, study))

    assert facts.recipe == "[levers.autocast]\n"
    assert [lever for lever, _ in facts.edits] == ["autocast bf16", "fused_optimizer fused"]
    assert "torch.autocast" in facts.edits[0][1]


def test_a_lever_of_a_package_that_is_gone_has_no_edit(tmp_path: Path) -> None:
    study = replace(faster(), recipe=(on("gone"), BF16))

    assert [lever for lever, _ in gather(study, tmp_path).edits] == ["autocast bf16"]


# -- the commands


@pytest.mark.parametrize("words", [[STUDY_ID], [STUDY_ID[:9]], ["study"], ["last"], []])
def test_report_writes_the_page_of_a_study(
    tmp_path: Path, capsys: Capture, words: list[str]
) -> None:
    folder = make_folder(tmp_path, faster())

    assert main.main(["report", *words, "--no-open"]) == 0

    assert capsys.readouterr().out == f"{folder / 'report.html'}\n"
    assert "report of one study" in (folder / "report.html").read_text()


def test_last_is_the_newest_of_all_kinds_or_of_the_one_that_is_named(
    tmp_path: Path, capsys: Capture
) -> None:
    run = make_run(tmp_path)
    folder = make_folder(tmp_path, faster())

    for words, kind in ((["last"], "studies"), (["run"], "runs"), (["last~0"], "runs")):
        assert main.main(["report", *words, "--json"]) == 0
        data = json.loads(capsys.readouterr().out)["data"]
        place = folder if kind == "studies" else run.folder
        assert data == {"id": place.name, "kind": kind, "page": str(place / "report.html")}

    assert main.main(["report", "study", "-o", "mine.html"]) == 0
    assert "report of one study" in (tmp_path / "mine.html").read_text()


def test_an_id_of_nothing_names_the_kinds_that_were_searched(
    tmp_path: Path, capsys: Capture
) -> None:
    make_run(tmp_path)
    make_folder(tmp_path, faster())

    check_failure(capsys, "report", "1999", code=2, says="there is no run or study or fit `1999`")
    check_failure(capsys, "report", "fit", code=2, says="there are no fits in")


@pytest.mark.parametrize("words", [["report", "--training", "2"], ["show", "--waterfall"]])
def test_an_option_of_runs_is_refused_for_a_study(
    words: list[str], tmp_path: Path, capsys: Capture
) -> None:
    make_folder(tmp_path, faster())

    says = f"{words[1]} has no effect with a study"
    check_failure(capsys, *words, "study", code=2, says=says)


def test_show_names_the_page_of_a_study_in_its_document(tmp_path: Path, capsys: Capture) -> None:
    folder = make_folder(tmp_path, faster())
    main.main(["report", "last"])
    capsys.readouterr()

    assert main.main(["show", "--json"]) == 0

    assert json.loads(capsys.readouterr().out)["data"]["page"] == str(folder / "report.html")


# -- at the end of tune


def ended(study: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    def run_study(options: StudyOptions, *, progress: Any) -> Study:
        make_folder(Path(), study)
        return study

    monkeypatch.setattr(tune, "run_study", run_study)


def test_tune_leaves_the_page_beside_the_recipe_and_says_where(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended(faster(), monkeypatch)

    assert main.main(["tune", "--json", "result.json", "--", "python", "train.py"]) == 0

    page = tmp_path / ".steptime" / "studies" / STUDY_ID / "report.html"
    assert f"steptime: the page of this study: {page}" in capsys.readouterr().err
    assert json.loads((tmp_path / "result.json").read_text())["data"]["page"] == str(page)
    assert "steptime run --recipe tuned.toml -- python train.py" in page.read_text()


def test_a_page_that_cannot_be_written_costs_the_page_alone(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended(faster(), monkeypatch)

    def fail(*_: Any, **__: Any) -> None:
        raise StoreError("the disk is full")

    monkeypatch.setattr(study_page, "write_study_page", fail)

    assert main.main(["tune", "--", "python", "train.py"]) == 0
    assert "the page of this study" not in capsys.readouterr().err


def test_ctrl_c_after_the_search_keeps_what_was_found(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended(faster(), monkeypatch)

    def interrupt(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(tune, "_proven", interrupt)
    monkeypatch.setattr(study_page, "write_study_page", interrupt)

    proof = ["--prove", "--margin", "1%-of-training", "--metric", "loss ([0-9.]+)"]
    words = ["tune", *proof, "--json", "result.json", "--", "python", "train.py"]
    assert main.main(words) == 130
    out, err = capsys.readouterr()
    assert "interrupted after the search, whose result stands" in err
    assert "faster" in out
    document = json.loads((tmp_path / "result.json").read_text())
    assert document["errors"][0]["code"] == "interrupted"
    assert document["data"]["study"]["outcome"] == "faster"
    assert not (tmp_path / "tuned.toml").exists()


def test_a_study_whose_folder_is_gone_has_none(tmp_path: Path) -> None:
    assert folder_of(faster(), store=tmp_path) is None
