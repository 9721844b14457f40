"""The lever that gives running functions the code of their file with an edit."""

from __future__ import annotations

import gc
import hashlib
import importlib.util
import random
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from steptime.levers import load
from steptime.levers.base import Facts
from steptime.levers.examples import WINDOWS
from steptime.levers.tools.line_edits import LineChange, edited, is_for, read_edits
from steptime.measure.source.loop_marks import LoopMark
from steptime.testing.lever_session_double import PlainSession
from steptime.tune.trials.facts.loop_diffs import live_diffs

torch = pytest.importorskip("torch")

SCRIPT = """\
import torch
series = torch.arange(100.0)
at = torch.randint(90, (5,))
outside = torch.stack([series[i] for i in at])
def draw(length):
    at = torch.randint(len(series) - length, (6,))
    x = torch.stack([series[i:i+length] for i in at])
    return x
def last():
    raise RuntimeError
class Batches:
    def rows(self):
        at = torch.randint(90, (4,))
        rows = []
        for i in at:
            rows.append(series[i])
        x = torch.stack(rows)
        return x
    def line(self):
        return None
def make(scale):
    def inner():
        at = torch.randint(90, (4,))
        return scale * torch.stack([series[i] for i in at])
    return inner
"""
LINES = {
    7: "    x = series.unfold(0, length, 1).movedim(-1, 1)[at]",
    14: "        x = series[at]",
    24: "        return scale * series[at]",
}
"""Their lines with the edit; the one at 14 takes the place of four."""


def diff_of(text: str = SCRIPT, *, name: str = "script.py", sums: bool = True) -> str:
    lines, parts = text.split("\n"), [f"--- a/{name}\n+++ b/{name}\n"]
    if sums:
        parts.insert(0, f"# sha256:{hashlib.sha256(text.encode()).hexdigest()}\n")
    for number, after in LINES.items():
        num = 4 if number == 14 else 1
        parts.append(f"@@ -{number - 1},{num + 2} +{number - 1},3 @@\n {lines[number - 2]}\n")
        parts += [f"-{line}\n" for line in lines[number - 1 : number - 1 + num]]
        parts.append(f"+{after}\n {lines[number - 1 + num]}\n")
    return "".join(parts)


@pytest.fixture
def session() -> Iterator[PlainSession]:
    with PlainSession(torch) as found:
        yield found


def load_script(folder: Path, text: str = SCRIPT) -> ModuleType:
    path = folder / "script.py"
    path.write_text(text, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(f"script_{random.getrandbits(64)}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def put_on(session: PlainSession, diff: str) -> Callable[[], None]:
    lever = load("vectorized_loops")
    assert lever.apply is not None
    undo = lever.apply({"diff": diff}, session)
    assert undo is not None
    return undo


def results(script: ModuleType) -> Any:
    """What the functions give from one seed, and the state of the generator behind them."""
    torch.manual_seed(3)
    found = [script.draw(7), script.Batches().rows(), script.make(2.0)()]
    return [one.numpy().tobytes() for one in (*found, torch.get_rng_state())]


# -- what is done to functions


def test_functions_get_the_code_of_the_edit_and_then_their_own_again(
    tmp_path: Path, session: PlainSession
) -> None:
    script = load_script(tmp_path)
    functions = (script.draw, script.Batches.rows, script.make)
    before, expected = [one.__code__ for one in functions], results(script)

    undo = put_on(session, diff_of())

    assert all(one.__code__ is not code for one, code in zip(functions, before, strict=True))
    assert results(script) == expected
    assert {one.__code__.co_filename for one in functions} == {str(tmp_path / "script.py")}
    undo()
    assert all(one.__code__ is code for one, code in zip(functions, before, strict=True))


def test_the_lines_of_other_code_keep_their_numbers(tmp_path: Path, session: PlainSession) -> None:
    script = load_script(tmp_path)
    put_on(session, diff_of())

    lines = [line for _, _, line in script.Batches.rows.__code__.co_lines()]
    assert max(line for line in lines if line) == 18  # its return
    with pytest.raises(RuntimeError) as caught:
        script.last()
    assert caught.traceback[-1].lineno == 9  # pytest counts from 0


def test_a_closure_that_was_made_before_is_changed_and_keeps_its_values(
    tmp_path: Path, session: PlainSession
) -> None:
    script = load_script(tmp_path)
    torch.manual_seed(5)
    inner = script.make(3.0)
    code, expected = inner.__code__, inner()

    undo = put_on(session, diff_of())

    torch.manual_seed(5)
    assert inner.__code__ is not code
    assert torch.equal(inner(), expected)
    undo()
    assert inner.__code__ is code


def test_a_function_that_is_defined_later_is_changed_when_a_model_is_called(
    tmp_path: Path, session: PlainSession
) -> None:
    undo = put_on(session, diff_of())
    script = load_script(tmp_path)
    code = script.draw.__code__

    torch.nn.Linear(2, 2)(torch.zeros(1, 2))

    assert script.draw.__code__ is not code
    undo()
    assert script.draw.__code__ is code


def test_frozen_functions_are_found_by_their_names(tmp_path: Path, session: PlainSession) -> None:
    script = load_script(tmp_path)
    code = script.draw.__code__
    sys.modules[script.__name__] = script
    gc.freeze()
    try:
        undo = put_on(session, diff_of())
        assert script.draw.__code__ is not code
        undo()
    finally:
        gc.unfreeze()
        del sys.modules[script.__name__]


def test_a_file_that_was_changed_anywhere_is_left_alone(
    tmp_path: Path, session: PlainSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = load_script(tmp_path, SCRIPT.replace("arange(100.0)", "arange(99.0)"))
    code = script.draw.__code__

    put_on(session, diff_of())  # it may be another file of that name
    assert script.draw.__code__ is code

    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=r"script.py is not as it was .* tune the script again"):
        put_on(session, diff_of())
    assert script.draw.__code__ is code


def test_a_function_that_was_loaded_from_another_text_is_left_alone(
    tmp_path: Path, session: PlainSession
) -> None:
    script = load_script(tmp_path, SCRIPT.replace("(6,)", "(9,)"))
    (tmp_path / "script.py").write_text(SCRIPT, encoding="utf-8")
    code, other = script.draw.__code__, script.Batches.rows.__code__

    put_on(session, diff_of())

    assert script.draw.__code__ is code
    assert script.Batches.rows.__code__ is not other


def test_what_another_tool_did_meanwhile_stays(tmp_path: Path, session: PlainSession) -> None:
    script = load_script(tmp_path)
    undo = put_on(session, diff_of())
    script.draw.__code__ = (lambda length: length).__code__

    undo()

    assert script.draw(7) == 7


# -- what is read of a diff


def test_a_replacement_with_fewer_lines_gets_empty_ones(tmp_path: Path) -> None:
    (edit,) = read_edits(diff_of())
    after = edited(edit, SCRIPT).split("\n")

    assert after[13:17] == [LINES[14], "", "", ""]
    assert len(after) == len(SCRIPT.split("\n"))
    assert after[17:] == [*SCRIPT.split("\n")[17:23], LINES[24], *SCRIPT.split("\n")[24:]]


def test_the_same_edit_in_two_diffs_counts_once_and_files_are_told_apart() -> None:
    twice = read_edits(diff_of() + diff_of() + diff_of(name="other.py", sums=False))

    assert [one.name for one in twice] == ["script.py", "other.py"]
    assert [one.line for one in twice[0].changes] == [7, 14, 24]
    assert twice[1].digest is None
    assert is_for(twice[1], SCRIPT)
    assert not is_for(twice[1], SCRIPT.replace("    x = torch", "    y = torch"))


def test_of_changes_that_overlap_the_larger_one_counts() -> None:
    head = "--- a/x.py\n+++ b/x.py\n"
    first = f"{head}@@ -2 +2 @@\n-b\n+B\n"
    both = f"{head}@@ -1,2 +1,2 @@\n-a\n-b\n+A\n+B\n"

    (edit,) = read_edits(first + both)

    assert edit.changes == (LineChange(1, ("a", "b"), ("A", "B")),)


def test_what_does_not_fit_is_said() -> None:
    (edit,) = read_edits(diff_of())
    with pytest.raises(ValueError, match="does not fit"):
        edited(edit, "pass\n")
    (longer,) = read_edits("--- a/x.py\n+++ b/x.py\n@@ -1 +1,2 @@\n-a\n+b\n+c\n")
    with pytest.raises(ValueError, match="more lines"):
        edited(longer, "a\n")
    for broken in ("what\n", "-a\n", "@@ -1 +1 @@\n", "--- a/x.py\n+++ b/x.py\n-a\n"):
        with pytest.raises(ValueError, match="a line that is none"):
            read_edits(broken)


# -- where it applies


def test_of_diffs_that_show_the_same_loop_the_larger_ones_are_kept() -> None:
    head = "--- a/x.py\n+++ b/x.py\n"
    first = f"{head}@@ -2 +2 @@\n-b\n+B\n"
    both = f"{head}@@ -1,2 +1,2 @@\n-a\n-b\n+A\n+B\n"
    other = first.replace("x.py", "y.py")
    mark = LoopMark(code="", file="/x.py", line=1, end_line=1, text="", what="other")
    marks = [replace(mark, live=one) for one in (first, None, both, first, other)]

    assert live_diffs(marks) == (both, other)


def test_it_applies_where_an_edit_is_known() -> None:
    lever = load("vectorized_loops")

    def reason(edits: tuple[str, ...] | None) -> str | None:
        return lever.applies(Facts(torch_version="2.9.0", loop_edits=edits))

    assert reason((WINDOWS,)) is None
    assert "not observed" in str(reason(None))
    assert "No loop" in str(reason(()))
    assert lever.space(Facts(torch_version="2.9.0", loop_edits=("a", "b"))) == ({"diff": "ab"},)
    assert lever.edit({"diff": WINDOWS}).startswith("# train.py:21\n-     x = torch.stack(")
