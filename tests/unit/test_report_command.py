"""`steptime report`, and the page at the end of `steptime run`."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import pytest

from steptime.app.stored.load import load_run
from steptime.cli import main, report
from steptime.cli.run import run as run_command
from steptime.core.store import Run
from unit.builders import make_end, make_head, make_row
from unit.test_cli import check_failure, make_run

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tmp").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))


def make_run_with_steps(folder: Path) -> Run:
    run = make_run(folder)
    lines = [make_head(), {"k": "u", "rows": [make_row(n) for n in range(30)]}, make_end(30)]
    (run.folder / "rank-0.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return run


def test_the_page_lies_in_the_run_folder_and_its_place_is_printed(
    tmp_path: Path, capsys: Capture
) -> None:
    run = make_run_with_steps(tmp_path)
    assert main.main(["report", "last", "--no-open"]) == 0
    out, err = capsys.readouterr()
    assert out == f"{run.folder / 'report.html'}\n"
    assert err == ""
    page = (run.folder / "report.html").read_text()
    assert page.startswith("<!DOCTYPE html>")
    assert "Step time" in page


def test_the_page_goes_to_the_named_file_whole(tmp_path: Path, capsys: Capture) -> None:
    run = make_run_with_steps(tmp_path)
    assert main.main(["report", run.run_id[:8], "-o", "mine.html"]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'mine.html'}\n"
    assert (tmp_path / "mine.html").read_text().rstrip().endswith("</html>")
    assert not (run.folder / "report.html").exists()


def test_a_run_without_steps_has_a_page_if_one_asks_for_it(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    assert main.main(["report", "last"]) == 0
    assert "Environment" in (run.folder / "report.html").read_text()


def test_the_document_names_the_page(tmp_path: Path, capsys: Capture) -> None:
    run = make_run_with_steps(tmp_path)
    assert main.main(["report", "last", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["command"] == "report"
    page = str(run.folder / "report.html")
    assert document["data"] == {"id": run.run_id, "kind": "runs", "page": page}


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path, capsys: Capture) -> None:
    make_run_with_steps(tmp_path)
    words = ("report", "last", "-o", "no/such/page.html")
    check_failure(capsys, *words, code=2, says="--output: there is no folder `no/such`.")


def test_a_file_that_cannot_be_written_is_said_with_what_to_do(
    tmp_path: Path, capsys: Capture
) -> None:
    run = make_run_with_steps(tmp_path)
    (run.folder / "report.html").mkdir()
    check_failure(capsys, "report", "last", code=1, says="Name another file with -o FILE.")


def test_an_unknown_run_is_said(tmp_path: Path, capsys: Capture) -> None:
    make_run(tmp_path)
    check_failure(
        capsys, "report", "19990101", code=2, says="there is no run or study or fit `19990101`"
    )


def test_at_the_end_of_a_run_one_line_says_how_its_page_is_drawn(
    tmp_path: Path, capsys: Capture
) -> None:
    run = make_run_with_steps(tmp_path)
    run_command._offer_page(load_run(run))
    out, err = capsys.readouterr()
    assert out == ""
    assert err == f"steptime: the page of this run: steptime report {run.run_id}\n"
    assert not (run.folder / "report.html").exists()


def test_nothing_is_opened_where_nobody_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISPLAY", ":0")
    assert not report._has_screen()
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(sys, "platform", "linux")
    assert report._has_screen()
    monkeypatch.delenv("DISPLAY")
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    assert not report._has_screen()
