"""What is told of torch.compile, from the books dynamo keeps."""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from steptime.guest.timeline.recorder import Recorder
from steptime.guest.watchers.compile_books import CompileWatcher, explain_break, explain_recompile
from steptime.record.buckets import OTHER

FOLDER = "/packages/torch/"
MODEL, TRAIN = "/home/me/model.py", "/home/me/train.py"


class Books:
    """`torch._dynamo.utils`, filled by hand."""

    def __init__(self) -> None:
        self.counters: dict[str, dict[str, int]] = defaultdict(dict)
        self.graph_break_reasons: list[Any] = []
        self.metrics: list[Any] = []
        self.guard_failures: dict[Any, list[str]] = {}
        self.get_compilation_metrics = lambda: list(self.metrics)

    def break_graph(self, reason: str, *frames: tuple[str, int]) -> None:
        stack = [SimpleNamespace(filename=file, lineno=line) for file, line in frames]
        self.graph_break_reasons.append(SimpleNamespace(reason=reason, user_stack=stack))

    def compile(self, compile_id: str, file: str | None = MODEL, **fields: Any) -> None:
        values = {
            "compile_id": compile_id,
            "co_filename": file,
            "co_firstlineno": 9,
            "start_time": float(len(self.metrics)),
            "fail_reason": None,
            "fail_user_frame_filename": None,
            "fail_user_frame_lineno": None,
        }
        self.metrics.append(SimpleNamespace(**values | fields))
        self.counters["stats"]["unique_graphs"] = self.graphs + 1

    @property
    def graphs(self) -> int:
        return self.counters["stats"].get("unique_graphs", 0)


@pytest.fixture
def books(monkeypatch: pytest.MonkeyPatch) -> Books:
    books = Books()
    monkeypatch.setitem(sys.modules, "torch._dynamo.utils", books)
    return books


@pytest.fixture
def watcher(tmp_path: Path) -> CompileWatcher:
    torch = SimpleNamespace(__file__=f"{FOLDER}__init__.py")
    recorder = Recorder(str(tmp_path), lambda: {"rank": 0})
    return CompileWatcher(torch, recorder, unix_s=lambda: 500.0)


def told(watcher: CompileWatcher) -> Any:
    """The counts so far, if there was something to tell."""
    text = watcher.poll(OTHER, is_last=False)
    return json.loads(text.splitlines()[0]) if text else None


def rows_of(watcher: CompileWatcher) -> Any:
    """What is told one by one."""
    lines = map(json.loads, watcher.poll(OTHER, is_last=False).splitlines())
    return [row for line in lines if line["k"] == "ce" for row in line["rows"]]


def test_without_dynamo_there_is_nothing_to_tell(
    watcher: CompileWatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "torch._dynamo.utils", raising=False)
    assert told(watcher) is None
    assert "torch._dynamo.utils" not in sys.modules


def test_dynamo_half_imported_is_not_looked_at(
    watcher: CompileWatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch._dynamo.utils", SimpleNamespace())
    assert told(watcher) is None


def test_looking_leaves_no_trace_in_dynamos_books(watcher: CompileWatcher, books: Books) -> None:
    assert told(watcher) is None
    assert books.counters == {}


def test_a_line_is_written_when_something_was_compiled_and_not_again(
    watcher: CompileWatcher, books: Books
) -> None:
    books.compile("0/0")
    line = told(watcher)
    assert (line["k"], line["graphs"]) == ("c", 1)
    assert (line["breaks"], line["recompiles"]) == ([], [])
    assert told(watcher) is None
    books.compile("1/0")
    assert told(watcher)["graphs"] == 2


def test_a_break_is_told_at_the_innermost_line_of_the_users(
    watcher: CompileWatcher, books: Books
) -> None:
    frames = [(TRAIN, 3), (MODEL, 12), (f"{FOLDER}nn/modules/container.py", 7)]
    books.break_graph("call to print", *frames)
    assert told(watcher)["breaks"] == [["call to print", MODEL, 12, 1]]
    books.break_graph("call to print", *frames)
    books.break_graph("call to print", (TRAIN, 4))
    books.break_graph("in torch", (f"{FOLDER}_tensor.py", 4))
    assert told(watcher)["breaks"] == [
        ["call to print", MODEL, 12, 2],
        ["call to print", TRAIN, 4, 1],
        ["in torch", None, None, 1],
    ]


def test_a_frame_torch_gave_up_on_breaks_the_graph(watcher: CompileWatcher, books: Books) -> None:
    failed = {"fail_user_frame_filename": MODEL, "fail_user_frame_lineno": 14}
    books.compile("0/0", fail_reason="loop with a print", **failed)
    books.compile("1/0", fail_reason="nowhere said")
    assert told(watcher)["breaks"] == [
        ["loop with a print", MODEL, 14, 1],
        ["nowhere said", MODEL, 9, 1],
    ]


def test_a_compilation_made_again_is_told_with_its_guard(
    watcher: CompileWatcher, books: Books
) -> None:
    books.compile("0/0", recompile_reason=None)
    assert told(watcher)["recompiles"] == []
    for number in range(1, 4):
        reason = f"0/{number - 1}: tensor 'x' size mismatch at index 0. expected 3, actual {number}"
        books.compile(f"0/{number}_1", recompile_reason=reason)
    ((reason, file, line, times),) = told(watcher)["recompiles"]
    assert reason == "tensor 'x' size mismatch at index 0. expected 3, actual 1"
    assert (file, line, times) == (MODEL, 9, 3)


def test_an_older_torch_keeps_the_guards_by_function(watcher: CompileWatcher, books: Books) -> None:
    code, other = (
        compile("", MODEL, "exec").replace(co_firstlineno=line, co_name=f"at_{line}")
        for line in (9, 20)
    )
    books.guard_failures = {other: ["not this"], code: ["first", "L['n'] == 0    # in f"]}
    books.compile("0/1")
    books.compile("7/1", co_firstlineno=30)
    assert told(watcher)["recompiles"] == [
        ["L['n'] == 0", MODEL, 9, 1],
        ["unknown", MODEL, 30, 1],
    ]


def test_each_compilation_and_break_has_its_time_and_place(
    watcher: CompileWatcher, books: Books
) -> None:
    books.compile("0/0", start_time=100.5, entire_frame_compile_time_s=2.5)
    books.compile("0/1", start_time=103.0, recompile_reason="0/0: size of x")
    books.break_graph("call to print", (MODEL, 12))
    books.compile("1/0", start_time=105.0, fail_reason="gave up", fail_user_frame_filename=MODEL,
                  fail_user_frame_lineno=14, entire_frame_compile_time_s=0.5)  # fmt: skip
    assert rows_of(watcher) == [
        ["graph_break", 500.0, None, "call to print", MODEL, 12],
        ["compile", 100.5, 2.5, None, MODEL, 9],
        ["recompile", 103.0, None, "size of x", MODEL, 9],
        ["graph_break", 105.0, 0.5, "gave up", MODEL, 14],
        ["compile", 105.0, 0.5, None, MODEL, 9],
    ]
    assert rows_of(watcher) == []


def test_a_script_that_always_compiles_again_is_told_to_a_limit(
    watcher: CompileWatcher, books: Books
) -> None:
    num_rows = 0
    for start in range(0, 2100, 30):
        for number in range(start, start + 30):
            books.compile(f"0/{number + 1}", start_time=float(number), recompile_reason="again")
        num_rows += len(rows_of(watcher))
        del books.metrics[:-30]
    assert num_rows == 2000
    assert watcher.recompiles.most_common()[0][3] == 2100


def test_compilations_of_a_backward_are_left_out(watcher: CompileWatcher, books: Books) -> None:
    books.compile("0/1", file=None)
    line = told(watcher)
    assert (line["graphs"], line["recompiles"]) == (1, [])


def test_compiled_autograds_numbers_are_understood(watcher: CompileWatcher, books: Books) -> None:
    books.compile("!0/4/0")
    books.compile("!1/4/1", recompile_reason="why not")
    books.compile("!2")
    assert [event[3] for event in told(watcher)["recompiles"]] == [1]


def test_a_reset_forgets_in_dynamo_and_not_here(watcher: CompileWatcher, books: Books) -> None:
    books.break_graph("first", (MODEL, 1))
    books.break_graph("first", (MODEL, 1))
    books.compile("0/0")
    books.compile("1/0")
    told(watcher)
    books.counters.clear()
    books.graph_break_reasons.clear()
    books.metrics.clear()
    books.break_graph("second", (MODEL, 1))
    books.compile("0/0")
    line = told(watcher)
    assert line["graphs"] == 3
    assert line["breaks"] == [["first", MODEL, 1, 2], ["second", MODEL, 1, 1]]


def test_ten_events_are_told_at_most(watcher: CompileWatcher, books: Books) -> None:
    for line in range(1, 30):
        books.break_graph("call to print", (MODEL, line))
    books.break_graph("call to print", (MODEL, 29))
    breaks = told(watcher)["breaks"]
    assert len(breaks) == 10
    assert breaks[0] == ["call to print", MODEL, 29, 2]


def test_a_new_process_has_compiled_nothing(watcher: CompileWatcher, books: Books) -> None:
    books.compile("0/0")
    told(watcher)
    watcher.reset()
    assert told(watcher)["graphs"] == 1


def test_what_was_compiled_before_a_late_run_is_left_out(
    watcher: CompileWatcher, books: Books
) -> None:
    books.compile("0/0")
    books.compile("0/1", recompile_reason="0/0: n == 0")
    books.break_graph("call to print", (MODEL, 3))
    watcher.skip_past()
    assert told(watcher) is None
    books.compile("1/0")
    line = told(watcher)
    assert (line["graphs"], line["breaks"], line["recompiles"]) == (1, [], [])


def test_reasons_are_short() -> None:
    long = (
        "Failed to trace builtin operator\n  Explanation: Dynamo does not know `print`\n"
        "  Hint: Avoid it.\n\n  Developer debug context: builtin print\n"
    )
    assert explain_break(long) == "Failed to trace builtin operator: Dynamo does not know `print`"
    assert len(explain_break("x" * 500)) == len(explain_recompile("x" * 500)) == 120
    guard = "6/0: n == 0          # return x * n  # train.py:22 in g\nUser stack trace:\n  File ..."
    assert explain_recompile(guard) == "n == 0"
