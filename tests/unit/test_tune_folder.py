"""The folder of a study: found again by its key, locked, with a number for each trial."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from steptime.errors import StoreError
from steptime.tune.study import study_folder as module
from steptime.tune.study.study_folder import (
    StudyFolder,
    find_unfinished,
    hold_lock,
    open_study,
    read_input,
)
from steptime.tune.values.study_values import Study, StudyOutcome

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

    assert find_unfinished(tmp_path, "a") is None
    assert open_study(tmp_path, "a").study_id != first.study_id


def test_a_fresh_study_is_asked_for(tmp_path: Path) -> None:
    first = open_study(tmp_path, "a")

    assert open_study(tmp_path, "a", is_fresh=True).study_id != first.study_id


def test_a_damaged_study_is_passed_over(tmp_path: Path) -> None:
    (open_study(tmp_path, "a").folder / "study.json").write_text("{")

    assert find_unfinished(tmp_path, "a") is None


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
