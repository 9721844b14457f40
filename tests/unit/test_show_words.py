"""The command that shows a run again: it names the store where the run lies in another one."""

from __future__ import annotations

import html
import os
import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from report_cases import healthy
from steptime.app.stored.load import load_run
from steptime.app.stored.report import write_page
from steptime.cli import main
from steptime.core.process_end import ProcessEnd, RunState
from steptime.core.store import Run, read_value, store_to_name, write_value
from steptime.launch.values import CommandRecord
from steptime.report.words.run.advice import next_act
from steptime.report.words.run.outliving_words import describe_return
from steptime.report.words.run.show_words import show_command
from unit.test_cli import make_run
from unit.test_report_command import make_run_with_steps

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a blank in its name, whose store is not that of the current folder."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "my runs"


def show_of(run: Run, folder: Path) -> str:
    return f"steptime show {run.run_id} --store '{folder}'"


def test_it_names_only_what_is_needed() -> None:
    assert show_command("r") == "steptime show r"
    assert (
        show_command("r", training=2, store="/a b") == "steptime show r --training 2 --store '/a b'"
    )
    assert show_command("r", option="--waterfall") == "steptime show r --waterfall"
    assert "\x1b" not in show_command("r", store="/\x1b[2J")


def test_the_store_of_the_current_folder_needs_no_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert store_to_name(run.store) is None
    link = tmp_path.parent / "link"
    link.symlink_to(tmp_path)
    assert store_to_name(link / ".steptime") is None


def test_a_report_from_another_store_says_how_to_see_it_again(
    elsewhere: Path, capsys: Capture
) -> None:
    run = make_run_with_steps(elsewhere)
    record = read_value(run, "command.json", CommandRecord)
    goes_on = replace(record, exit_code=None, ended_unix_s=None, parent_pid=os.getpid())
    write_value(run, "command.json", goes_on)
    assert main.main(["show", run.run_id, "--store", str(elsewhere)]) == 0
    last = capsys.readouterr().out.splitlines()[-1].strip()
    assert last == show_of(run, elsewhere)
    assert main.main(shlex.split(last)[1:]) == 0, "the command that is printed works"
    assert str(load_run(run)).splitlines()[-1].strip() == last


def test_what_to_do_next_names_the_store(elsewhere: Path) -> None:
    measurement = replace(healthy(), end=ProcessEnd(state=RunState.RUNNING))
    act = next_act(measurement, None, store=str(elsewhere))
    assert act.command == f"steptime show {measurement.run_id} --store '{elsewhere}'"
    told = describe_return("r", store="/tmp/x")
    assert told == "look again with: steptime show r --store /tmp/x"


def test_a_list_of_another_store_says_how_to_see_a_run_of_it(
    elsewhere: Path, capsys: Capture
) -> None:
    run = make_run_with_steps(elsewhere)
    assert main.main(["list", "--store", str(elsewhere)]) == 0
    assert capsys.readouterr().out.splitlines()[-1].strip() == show_of(run, elsewhere)


def test_a_comparison_names_the_store_of_the_run_to_look_at(
    elsewhere: Path, capsys: Capture
) -> None:
    a, b = make_run(elsewhere, exit_code=1), make_run(elsewhere)
    main.main(["compare", a.run_id, "--store", str(elsewhere), "--", b.run_id])
    assert show_of(a, elsewhere) in capsys.readouterr().out


def test_an_error_about_a_run_of_another_store_says_how_to_see_it(
    elsewhere: Path, capsys: Capture
) -> None:
    run = make_run(elsewhere)
    assert main.main(["attach", run.run_id, "--store", str(elsewhere)]) == 2
    assert show_of(run, elsewhere) in capsys.readouterr().err


def test_a_page_from_another_store_says_how_to_see_the_run(elsewhere: Path) -> None:
    run = make_run_with_steps(elsewhere)
    observed = load_run(run)
    observed = replace(observed, diagnosis=replace(observed.diagnosis, findings=()))
    page = html.unescape(write_page(observed).read_text())
    assert show_of(run, elsewhere) in page
