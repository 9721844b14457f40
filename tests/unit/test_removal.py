"""`steptime rm` and `prune`: what goes, what stays and why, and what the index says then."""

from __future__ import annotations

import io
import json
import os
import time
from pathlib import Path

import pytest

from steptime.app.stored.run_index import read_rows
from steptime.cli import main
from steptime.core.folder_lock import working_in
from steptime.core.store import Run
from unit.test_asking import ME
from unit.test_asking import make_run as make_going
from unit.test_cli import check_failure
from unit.test_store import make_run

Capture = pytest.CaptureFixture[str]
DAY_S = 86_400.0


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def make_study(folder: Path, study_id: str = "20261119-101500-aaaa") -> Path:
    place = folder / ".steptime" / "studies" / study_id
    (place / "trials" / "001").mkdir(parents=True)
    (place / "study.json").write_text("{}")
    return place


def make_old(folder: Path, *, days: float = 40) -> Path:
    then_s = time.time() - days * DAY_S
    for path in (*folder.iterdir(), folder):
        os.utime(path, (then_s, then_s))
    return folder


def use_recipe(run: Run, study: Path) -> None:
    path = run.folder / "command.json"
    document = json.loads(path.read_text())
    path.write_text(json.dumps(document | {"recipe": {"study_id": study.name}}))


def test_what_is_removed_is_named_by_its_id_and_last_is_no_hint(
    tmp_path: Path, capsys: Capture
) -> None:
    run = make_run(tmp_path)

    check_failure(capsys, "rm", "last", code=2, says="List them: steptime list")
    assert run.folder.exists()


def test_a_run_and_its_row_in_the_index_go(tmp_path: Path, capsys: Capture) -> None:
    run, other = make_run(tmp_path), make_run(tmp_path)
    assert main.main(["list"]) == 0
    assert len(read_rows(run.store / "index.sqlite")) == 2
    outside = tmp_path / "mine.txt"
    outside.write_text("mine")
    (run.folder / "link").symlink_to(outside)
    capsys.readouterr()

    assert main.main(["rm", run.run_id, "--yes", "--json"]) == 0

    data = json.loads(capsys.readouterr().out)["data"]
    assert (data["is_removed"], [one["id"] for one in data["folders"]]) == (True, [run.run_id])
    assert not run.folder.exists()
    assert other.folder.exists()
    assert outside.read_text() == "mine"
    assert set(read_rows(run.store / "index.sqlite")) == {other.run_id}


def test_a_run_that_goes_on_stays(tmp_path: Path, capsys: Capture) -> None:
    going = make_going(tmp_path, ME)

    check_failure(capsys, "rm", going.run_id, "--yes", code=2, says="the run goes on")
    assert going.folder.exists()


def test_a_run_whose_end_nobody_saw_stays_while_it_writes(tmp_path: Path, capsys: Capture) -> None:
    run = make_run(tmp_path)
    path = run.folder / "command.json"
    document = json.loads(path.read_text())
    gone = {"exit_code": None, "parent_pid": 0, "child_pid": 0}
    path.write_text(json.dumps(document | gone))

    check_failure(capsys, "rm", run.run_id, "--yes", code=2, says="the run goes on")
    make_old(run.folder)
    assert main.main(["rm", run.run_id, "--yes"]) == 0


def test_a_study_stays_while_a_run_trains_with_its_recipe(tmp_path: Path, capsys: Capture) -> None:
    going, study = make_going(tmp_path, ME), make_study(tmp_path)
    use_recipe(going, study)

    says = f"run {going.run_id} trains with its recipe"
    check_failure(capsys, "rm", study.name, "--yes", code=2, says=says)
    assert study.exists()


def test_a_study_at_work_stays(tmp_path: Path, capsys: Capture) -> None:
    study = make_study(tmp_path)

    with working_in(study):
        check_failure(capsys, "rm", study.name, "--yes", code=2, says="a command works in it")
    assert main.main(["rm", study.name, "--yes"]) == 0
    assert not study.exists()


@pytest.mark.parametrize("words", [["1999"], ["last"], ["../../mine"], [""]])
def test_what_is_no_id_is_not_removed(words: list[str], tmp_path: Path, capsys: Capture) -> None:
    make_run(tmp_path)
    study = make_study(tmp_path)
    assert main.main(["rm", *words, "--yes"]) == 2
    assert study.exists()


def test_without_yes_there_must_be_somebody_to_ask(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run(tmp_path)
    check_failure(capsys, "rm", run.run_id, code=2, says="Add --yes, or --dry-run to see it")

    answers = io.StringIO("no\nyes\n")
    monkeypatch.setattr(answers, "isatty", lambda: True)
    monkeypatch.setattr("sys.stdin", answers)
    assert main.main(["rm", run.run_id]) == 0
    assert run.folder.exists()
    assert main.main(["rm", run.run_id]) == 0
    assert not run.folder.exists()


def test_a_folder_that_a_link_leads_to_is_no_part_of_the_store(tmp_path: Path) -> None:
    make_run(tmp_path)
    outside = tmp_path / "elsewhere"
    outside.mkdir()
    (tmp_path / ".steptime" / "runs" / "20201120-101500-bbbb").symlink_to(outside)
    (tmp_path / ".steptime" / "fits").symlink_to(outside)
    (outside / "20201120-101500-cccc").mkdir()

    assert main.main(["rm", "20201120-101500-bbbb", "--yes"]) == 2
    assert main.main(["rm", "20201120-101500-cccc", "--yes"]) == 2
    assert (outside / "20201120-101500-cccc").is_dir()


def test_what_is_older_goes_and_a_study_stays_with_its_runs(
    tmp_path: Path, capsys: Capture
) -> None:
    old, young = make_run(tmp_path), make_run(tmp_path)
    make_old(old.folder)
    used = make_study(tmp_path)
    unused = make_old(make_study(tmp_path, "20261118-101500-bbbb"))
    use_recipe(young, used)
    make_old(used)

    assert main.main(["prune", "--older-than", "30d", "--dry-run"]) == 0
    assert old.folder.exists()
    assert main.main(["prune", "--older-than", "60d", "--yes"]) == 0
    assert "there is nothing to remove" in capsys.readouterr().err
    assert main.main(["prune", "--older-than", "30d", "--yes"]) == 0
    assert [one.exists() for one in (old.folder, unused, young.folder, used)] == [
        *(False, False),
        *(True, True),
    ]


def test_a_going_run_stays_however_old_it_looks(tmp_path: Path, capsys: Capture) -> None:
    going = make_going(tmp_path, ME)
    make_old(going.folder)

    assert main.main(["prune", "--older-than", "30d", "--yes"]) == 0
    assert f"{going.run_id} stays: the run goes on" in capsys.readouterr().err
    assert going.folder.exists()
