"""The folder of a study: found again by its key, locked, with a number for each trial."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from steptime.errors import StoreError
from steptime.launch.user_command import user_environment
from steptime.tune import run_study
from steptime.tune.study import study_folder as module
from steptime.tune.study.study_folder import (
    StudyFolder,
    find_unfinished,
    hold_lock,
    left_shadows,
    read_input,
)
from steptime.tune.study.study_key import make_key
from steptime.tune.study_options import StudyOptions
from steptime.tune.values.study_values import Study, StudyOutcome
from study_cases import faster


def open_study(store: Path, key: str, *, budget_s: float = 360.0, **more: bool) -> StudyFolder:
    return module.open_study(store, key, budget_s=budget_s, **more)


STUDY = Study(
    study_id="x",
    command=("python", "train.py"),
    started_unix_s=1.0,
    ended_unix_s=None,
    tier=None,
    outcome=None,
    recipe=(),
    speedup=None,
    noise_floor=None,
    quality=None,
    baseline_step_s=None,
    tuned_step_s=None,
    sample_unit=None,
    trials=(),
    not_tried=(),
    choices=(),
)


def test_a_study_without_an_outcome_is_found_again_by_its_key(tmp_path: Path) -> None:
    first = open_study(tmp_path, "a")
    first.save(STUDY)

    again = open_study(tmp_path, "a")

    assert again.study_id == first.study_id
    assert again.is_resumed
    assert again.started_unix_s == 1.0


def test_a_study_that_was_killed_before_its_first_answer_is_found_again(tmp_path: Path) -> None:
    first = open_study(tmp_path, "a")

    assert open_study(tmp_path, "a").study_id == first.study_id


def test_another_command_makes_a_new_study(tmp_path: Path) -> None:
    first = open_study(tmp_path, "a")

    assert open_study(tmp_path, "b").study_id != first.study_id


def test_a_study_with_an_outcome_is_left_alone(tmp_path: Path) -> None:
    first = open_study(tmp_path, "a")
    first.save(replace(STUDY, outcome=StudyOutcome.NOTHING_HELPS))

    assert find_unfinished(tmp_path, "a", budget_s=720.0) is None
    assert open_study(tmp_path, "a").study_id != first.study_id


def test_a_study_whose_time_did_not_suffice_continues_with_more(tmp_path: Path) -> None:
    first = open_study(tmp_path, "a", budget_s=360.0)
    first.save(replace(STUDY, outcome=StudyOutcome.TOO_NOISY))

    more = open_study(tmp_path, "a", budget_s=600.0)
    more.save(replace(STUDY, outcome=StudyOutcome.TOO_NOISY))
    most = open_study(tmp_path, "a", budget_s=900.0)

    assert more.study_id == most.study_id == first.study_id
    assert more.is_resumed
    assert most.budgets_s == (360.0, 600.0, 900.0)


@pytest.mark.parametrize("budget_s", [300.0, 360.0])
def test_without_more_time_such_a_study_begins_again(tmp_path: Path, budget_s: float) -> None:
    first = open_study(tmp_path, "a", budget_s=360.0)
    first.save(replace(STUDY, outcome=StudyOutcome.TOO_NOISY))

    assert open_study(tmp_path, "a", budget_s=budget_s).study_id != first.study_id


def test_a_study_that_was_cut_off_continues_with_as_much_time_or_more(tmp_path: Path) -> None:
    first = open_study(tmp_path, "a", budget_s=360.0)

    assert open_study(tmp_path, "a", budget_s=360.0).budgets_s == (360.0,)
    assert open_study(tmp_path, "a", budget_s=600.0).budgets_s == (360.0, 600.0)
    assert open_study(tmp_path, "a", budget_s=60.0).study_id != first.study_id


@pytest.mark.parametrize("text", ["null", "[]", '["x"]', "[-1]", "[600, 300]", "[1e999]", "[true]"])
def test_a_study_with_damaged_budgets_is_passed_over(tmp_path: Path, text: str) -> None:
    first = open_study(tmp_path, "a")
    path = first.folder / "study.json"
    path.write_text(path.read_text().replace("[360.0]", text))

    assert open_study(tmp_path, "a").study_id != first.study_id


def test_a_fresh_study_is_asked_for(tmp_path: Path) -> None:
    first = open_study(tmp_path, "a")

    assert open_study(tmp_path, "a", is_fresh=True).study_id != first.study_id


def test_a_damaged_study_is_passed_over(tmp_path: Path) -> None:
    (open_study(tmp_path, "a").folder / "study.json").write_text("{")

    assert find_unfinished(tmp_path, "a", budget_s=720.0) is None


def test_a_number_of_a_trial_is_never_used_again(tmp_path: Path) -> None:
    study = open_study(tmp_path, "a")
    study.new_trial().mkdir()
    study.new_trial().mkdir()
    (study.folder / "trials" / "000").rmdir()

    assert study.new_trial().name == "002"


def test_a_second_study_of_a_store_is_told_of_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_LOCK_WAIT_S", 0.0)
    first, second = open_study(tmp_path, "a"), open_study(tmp_path, "b")

    with hold_lock(first), pytest.raises(StoreError, match=first.study_id), hold_lock(second):
        pass
    with hold_lock(second):
        pass


def read(given: bytes, monkeypatch: pytest.MonkeyPatch, *, is_closed: bool = True) -> bytes | None:
    monkeypatch.setattr(module, "_STDIN_WAIT_S", 0.0)
    reader, writer = os.pipe()
    os.write(writer, given)
    if is_closed:
        os.close(writer)
    try:
        return read_input(reader)
    finally:
        os.close(reader)
        if not is_closed:
            os.close(writer)


def test_what_was_piped_in_is_kept_for_the_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    assert read(b"yes\n" * 1000, monkeypatch) == b"yes\n" * 1000


def test_an_input_without_a_byte_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    assert read(b"", monkeypatch) is None


def test_an_input_that_stays_open_and_silent_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert read(b"", monkeypatch, is_closed=False) is None


def test_the_study_folder_knows_its_answers(tmp_path: Path) -> None:
    study: StudyFolder = open_study(tmp_path, "a")

    assert study.answers.is_dir()


def test_a_study_that_is_killed_while_it_is_saved_has_its_recipe_and_is_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(folder: StudyFolder, study: Study) -> None:
        raise SystemExit

    options = StudyOptions(command=("sh", "train.sh"), store=tmp_path, levers=(), reads_input=False)
    monkeypatch.setattr(run_study._Run, "_search", lambda run: None)
    monkeypatch.setattr(run_study._Run, "_study", lambda run, **_: faster())
    monkeypatch.setattr(StudyFolder, "save", die)
    with pytest.raises(SystemExit):
        run_study.run_study(options, progress=lambda _: None)
    (folder,) = (path for path in (tmp_path / ".steptime" / "studies").iterdir() if path.is_dir())
    assert (folder / run_study.RECIPE).is_file()
    key = make_key(options, user_environment(), cwd=Path.cwd(), stdin=None)
    found = find_unfinished(tmp_path, key, budget_s=options.budget_s)
    assert found is not None
    assert found.folder == folder


def test_the_shadows_of_earlier_trials_are_found_for_the_sweep(tmp_path: Path) -> None:
    studies = tmp_path / "studies"
    names = ("a/trials/000/shadow", "a/quality/x-0/shadow", "b/probe-1/trial/shadow")
    for name in (*names, "b/trials/000/compiled", "b/shadow"):
        (studies / name).mkdir(parents=True)
    (studies / ".lock").write_text("")

    assert sorted(left_shadows(studies)) == [str(studies / name) for name in sorted(names)]
