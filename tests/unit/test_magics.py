"""The magics of a notebook, with a shell that only remembers what it is told."""

from __future__ import annotations

import html
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import steptime
from report_cases import input_bound
from steptime.app.stored.load import load_run
from steptime.core.process_end import ProcessEnd, RunState
from steptime.diagnose.diagnosis import diagnose
from steptime.errors import UsageError
from steptime.notebook import magics, observed_cell
from steptime.notebook.inline import Report
from steptime.notebook.magics import Magics, hide_first_line, parse_options
from steptime.report.words.run.advice import next_act
from unit.test_cli import make_run
from unit.test_report_command import make_run_with_steps


class Events:
    def __init__(self) -> None:
        self.callbacks: dict[str, list[Any]] = {"pre_run_cell": [], "post_run_cell": []}

    def register(self, event: str, function: Any) -> None:
        self.callbacks[event].append(function)

    def unregister(self, event: str, function: Any) -> None:
        self.callbacks[event].remove(function)


class Shell:
    """As much of IPython's shell as the magics use."""

    def __init__(self) -> None:
        self.events = Events()
        self.input_transformers_cleanup: list[Any] = []
        self.magics_manager = SimpleNamespace(magics={"cell": {}, "line": {}})
        self.shown: list[dict[str, str]] = []
        self.display_pub = SimpleNamespace(publish=lambda data, metadata: self.shown.append(data))

    def register_magic_function(self, function: Any, *, magic_kind: str, magic_name: str) -> None:
        self.magics_manager.magics[magic_kind][magic_name] = function


class FakeCell:
    """A cell that is observed without a guest."""

    def __init__(self, options: Any, *, text: str) -> None:
        self.text = text
        self.notes = ["it could not be observed"]
        self.did: list[Any] = []
        MADE.append(self)

    def begin(self) -> None:
        self.did.append("begin")

    def end(self, error: BaseException | None) -> None:
        self.did.append(error)


MADE: list[FakeCell] = []


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch) -> Shell:
    MADE.clear()
    monkeypatch.setattr(magics, "ObservedCell", FakeCell)
    monkeypatch.setattr(magics, "is_observed_already", lambda: False)
    return Shell()


def result_of(info: Any, **errors: BaseException) -> SimpleNamespace:
    return SimpleNamespace(info=info, **errors)


# -- options


def test_options_are_those_of_run_that_fit_a_cell() -> None:
    found = parse_options("--profile 50 --peak bf16=312 --store '/tmp/my runs'")
    assert found.profile is not None
    assert (found.profile.first_step, found.store) == (50, Path("/tmp/my runs"))
    assert found.peaks == {"bf16": 312e12}
    assert found.words == ("--profile", "50", "--peak", "bf16=312", "--store", "/tmp/my runs")
    assert parse_options("").profile is None
    by_default = parse_options("--profile").profile
    assert by_default is not None
    assert by_default.first_step == 30


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("--bogus", "unrecognized arguments: --bogus"),
        ("--profile 0", "from 1 on, got 0"),
        ("--profile soon", "invalid int value"),
        ("--peak bf16", "must be TYPE=TFLOPS"),
        ("--count", "has no --count: it would run the command again"),
        ("--memory", "has no --memory: who holds the memory is in each report"),
        ("--json=x", "has no --json"),
        ("'", "No closing quotation"),
        ("train.py", "unrecognized arguments: train.py"),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence(line: str, says: str) -> None:
    with pytest.raises(UsageError, match=r"steptime|--peak") as caught:
        parse_options(line)
    assert says in str(caught.value)
    assert caught.value.hint


# -- the first line


def test_the_first_line_becomes_a_comment_so_that_lines_keep_their_numbers() -> None:
    assert hide_first_line(["%%steptime --profile\n", "a\n"]) == ["# %%steptime --profile\n", "a\n"]


def test_another_magic_below_comes_first() -> None:
    assert hide_first_line(["%%steptime\n", "%%time\n", "a\n"]) == ["%%time\n", "a\n"]


@pytest.mark.parametrize(
    "lines", [[], ["a\n"], ["%%steptimer\n"], ["%%steptime --bogus\n"], [" x = '%%steptime'\n"]]
)
def test_other_cells_are_left_alone(lines: list[str]) -> None:
    assert hide_first_line(list(lines)) == lines


# -- events


def test_loading_twice_registers_once_and_unloading_takes_all_back(shell: Shell) -> None:
    steptime.load_ipython_extension(shell)
    steptime.load_ipython_extension(shell)
    assert shell.input_transformers_cleanup == [hide_first_line]
    assert [len(one) for one in shell.events.callbacks.values()] == [1, 1]
    assert [list(one) for one in shell.magics_manager.magics.values()] == [["steptime"]] * 2
    steptime.unload_ipython_extension(shell)
    assert shell.input_transformers_cleanup == []
    assert shell.events.callbacks == {"pre_run_cell": [], "post_run_cell": []}
    assert shell.magics_manager.magics == {"cell": {}, "line": {}}


def test_a_cell_is_observed_from_its_begin_to_its_end(shell: Shell) -> None:
    loaded, error = Magics(shell), ValueError("mine")
    info, inner = SimpleNamespace(raw_cell="\n%%steptime\nx = 1"), SimpleNamespace(raw_cell="y")
    loaded.before(info)
    loaded.before(inner)
    loaded.after(result_of(inner))
    (cell,) = MADE
    assert (cell.text, cell.did) == ("%%steptime\nx = 1", ["begin"])
    loaded.after(result_of(info, error_in_exec=error))
    assert cell.did == ["begin", error]
    assert shell.shown == [{"text/plain": "steptime: it could not be observed"}]
    loaded.after(result_of(info))
    assert len(cell.did) == 2


@pytest.mark.parametrize("raw", ["", "x = 1", "%%time\nx = '%%steptime'", "%%steptime --bogus\n"])
def test_other_cells_are_not_observed(shell: Shell, raw: str) -> None:
    Magics(shell).before(SimpleNamespace(raw_cell=raw))
    assert (MADE, shell.shown) == ([], [])


def test_in_the_wrong_place_it_says_where_it_belongs(shell: Shell) -> None:
    Magics(shell).before(SimpleNamespace(raw_cell="%%time\n%%steptime\nx = 1"))
    assert MADE == []
    assert "must be on the first line" in shell.shown[0]["text/plain"]


def test_under_steptime_run_it_steps_aside(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(magics, "is_observed_already", lambda: True)
    Magics(shell).before(SimpleNamespace(raw_cell="%%steptime\nx = 1"))
    assert MADE == []
    assert "runs under `steptime run`" in shell.shown[0]["text/plain"]


# -- what is shown


def test_the_page_below_a_cell_has_no_script_and_no_address(tmp_path: Path) -> None:
    bundle = Report(load_run(make_run_with_steps(tmp_path)), notes=("it is late",)).bundle()
    assert set(bundle) == {"text/plain", "text/html"}
    assert bundle["text/plain"].endswith("\nsteptime: it is late")
    assert "<script" not in html.unescape(bundle["text/html"])
    assert " sandbox " in bundle["text/html"]
    assert html.escape("it is late") in bundle["text/html"]


def test_a_run_without_steps_and_a_page_that_is_too_long_are_shown_as_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = Report(load_run(make_run(tmp_path / "empty"))).bundle()
    assert bundle["text/html"] == f"<pre>{html.escape(bundle['text/plain'])}</pre>"
    monkeypatch.setattr("steptime.notebook.inline.MAX_BYTES", 100)
    bundle = Report(load_run(make_run_with_steps(tmp_path))).bundle()
    assert bundle["text/html"].startswith("<pre>")


def test_what_to_do_next_is_for_a_cell_and_not_for_a_command() -> None:
    measurement = replace(input_bound(), command=("%%steptime", "--profile"))
    act = next_act(measurement, diagnose(measurement))
    assert "put the training into a file" in act.sentence
    assert act.command.startswith("steptime tune --levers ")
    assert act.command.endswith(" -- python train.py")
    failed = replace(measurement, end=ProcessEnd(state=RunState.FAILED, exit_code=1))
    assert next_act(failed, diagnose(failed)).command == "%%steptime --profile"


def test_a_cell_ends_in_the_words_of_a_command() -> None:
    ends = [observed_cell._end_of(e) for e in (None, ValueError(), KeyboardInterrupt())]
    assert [(end.exit_code, end.signal) for end in ends] == [(0, None), (1, None), (None, 2)]
