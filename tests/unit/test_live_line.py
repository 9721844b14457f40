"""The live line of a run: what it says, and when there is none."""

from __future__ import annotations

import os
import pty
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from report_cases import desynced
from steptime.cli.run import live
from steptime.measure.wall.stall_file import StallFile
from steptime.report.text.live_text import Pace, live_line


def test_before_the_first_update_the_line_says_so() -> None:
    line = live_line(Pace(elapsed_s=12.4, job_cores=0.96, num_cores=2), width=80)
    assert line == "steptime 12.0 s · no update yet · 1 of 2 cores"


def test_the_line_has_count_pace_ranks_and_cores() -> None:
    pace = Pace(
        elapsed_s=125.0,
        num_updates=1234,
        usual_s=0.0123,
        num_ranks=2,
        job_cores=1.93,
        num_cores=2,
    )
    assert live_line(pace, width=80) == (
        "steptime 2 min 05 s · 1,234 updates · 12.3 ms each · 2 ranks · 1.9 of 2 cores"
    )


@pytest.mark.parametrize(("silent_s", "is_said"), [(0.3, False), (3.1, True), (1.9, False)])
def test_a_pause_of_many_steps_is_said(silent_s: float, *, is_said: bool) -> None:
    pace = Pace(elapsed_s=9.0, num_updates=8, usual_s=0.02, silent_s=silent_s, num_ranks=1)
    assert ("none for" in live_line(pace, width=80)) == is_said


def test_the_line_never_wraps() -> None:
    pace = Pace(elapsed_s=125.0, num_updates=1234, usual_s=0.0123, num_ranks=2)
    assert len(live_line(pace, width=30)) <= 30
    assert live_line(pace, width=0)


@pytest.fixture
def xterm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")


@pytest.mark.usefixtures("xterm")
def test_there_is_no_line_where_the_command_may_write_to_a_terminal(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    with (tmp_path / "log").open("wb") as log:
        for outputs in ((theirs, theirs), (log.fileno(), theirs), (theirs, log.fileno())):
            reason = live.why_no_line(outputs)
            assert reason is not None
            assert reason.startswith("the command may write to this terminal as well.")
            assert "> train.log 2>&1" in reason
    os.close(ours)
    os.close(theirs)


@pytest.mark.usefixtures("xterm")
def test_there_is_no_line_where_a_pipe_may_lead_to_the_terminal(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    with (tmp_path / "log").open("wb") as log:
        reason = live.why_no_line((writer, log.fileno()))
    assert reason is not None
    assert "to a pipe" in reason
    os.close(reader)
    os.close(writer)


def test_there_is_no_line_on_a_terminal_that_cannot_take_it_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TERM", "dumb")
    assert "TERM" in (live.why_no_line() or "")


@pytest.mark.usefixtures("xterm")
def test_there_is_no_line_without_a_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "_TERMINAL", "/no/such/terminal")
    with (tmp_path / "log").open("wb") as log, Path(os.devnull).open("wb") as null:
        assert live.why_no_line((log.fileno(), null.fileno())) == "there is no terminal."


@pytest.mark.usefixtures("xterm")
def test_files_and_nothing_at_all_leave_room_for_the_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tty").touch()
    monkeypatch.setattr(live, "_TERMINAL", str(tmp_path / "tty"))
    closed = os.open(os.devnull, os.O_WRONLY)
    os.close(closed)
    with (tmp_path / "log").open("wb") as log, Path(os.devnull).open("wb") as null:
        assert live.why_no_line((log.fileno(), null.fileno())) is None
        assert live.why_no_line((log.fileno(), closed)) is None


def test_bad_numbers_of_a_training_are_said_once(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    ranks = [SimpleNamespace(bad_update=None), SimpleNamespace(bad_update=None)]
    line = live.Troubles(tmp_path, lambda: [[ranks[0]], [ranks[1]]])  # type: ignore[list-item]
    line.show()
    ranks[0].bad_update = 1234
    line.show()
    ranks[1].bad_update = 7
    line.show()
    line.show()
    line.clear()

    assert capsys.readouterr().err.splitlines() == [
        "steptime: the loss or the gradients are not finite in update 1,234.",
        "steptime: the loss or the gradients of training 2 are not finite in update 7.",
    ]


def test_ranks_that_lost_each_other_are_said_once(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    line = live.Troubles(tmp_path, list)
    line.show()
    (stall,) = desynced().stalls
    StallFile(tmp_path).add(replace(stall, desync=None))
    StallFile(tmp_path).add(stall)
    line.show()
    line.show()

    assert capsys.readouterr().err.splitlines() == [
        "steptime: the ranks stand still: rank 1 called broadcast #301 of 50 float32 at "
        "train.py:11 where rank 0 called all_reduce #301 of 77 float32 at train.py:10."
    ]
