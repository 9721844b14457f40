"""Sampled stacks: which line of the script they were at, what it does, and what is said of it."""

from __future__ import annotations

import ast
import gc
import sys
import threading
import weakref
from collections.abc import Callable
from dataclasses import replace
from types import FrameType, SimpleNamespace
from typing import Any

import pytest

from steptime.diagnose.ailments.waste.needless_work import find_growing, find_needless
from steptime.guest.sites.file_owners import FileOwners
from steptime.guest.spent.line_book import LineBook, stack_of
from steptime.guest.spent.stack_sampler import StackSampler, stack_of_thread
from steptime.guest.timeline.recorder import Recorder
from steptime.measure.spent.needless_calls import find_needless as find_in_source
from steptime.measure.values.spent_line import SpentLine, SpentTime
from steptime.record.buckets import EVALUATION, FORWARD, OTHER
from steptime.record.loaders.batch_rows import SpentRow, spent
from unit.builders import make_measurement

OWNERS = FileOwners(SimpleNamespace(__file__="/nowhere/torch/__init__.py"))


def here() -> FrameType:
    return sys._getframe(1)


def sampled(*samples: tuple[int, int, int]) -> list[SpentRow]:
    """The rows of samples at one line: bucket, time, update."""
    book = LineBook(OWNERS)
    frame = here()
    for bucket, ns, update in samples:
        book.add(stack_of(frame), bucket, ns, update)
    return spent({"rows": book.rows()})


def test_samples_are_sorted_by_phase_and_line() -> None:
    rows = sampled((OTHER, 5, 1), (FORWARD, 70, 2), (OTHER, 15, 3))

    assert [(row.what, row.num, row.ns, row.mean_update) for row in rows] == [
        ("forward", 1, 70, 2.0),
        ("other", 2, 20, 2.5),
    ]
    assert {row.file for row in rows} == {__file__}


def test_the_line_is_the_users_and_the_callee_the_librarys() -> None:
    seen: list[FrameType] = []
    # Sorting calls back from C; a function of a library does so from Python.
    library: dict[str, Any] = {"__name__": "pandas.core"}
    code = compile("def take(act):\n    act()\n", "/nowhere/site-packages/pandas/core.py", "exec")
    exec(code, library)  # a library's function

    library["take"](lambda: seen.append(here()))
    frame = seen[0].f_back  # the lambda has returned

    book = LineBook(OWNERS)
    book.add(stack_of(frame), OTHER, 9, 1)
    (row,) = spent({"rows": book.rows()})
    assert row.file == "/nowhere/site-packages/pandas/core.py" or row.callee == "pandas.core.take"
    assert book.libraries == {"pandas": 9}
    book.add(stack_of(here()), OTHER, 9, 1)
    book.add(stack_of(frame), EVALUATION, 9, 1)  # no part of a step
    assert book.libraries == {"pandas": 9}


def test_the_thread_samples_the_one_that_steps_and_is_over_when_stopped() -> None:
    recorder = Recorder("/nowhere", dict)
    recorder.journals = [SimpleNamespace(top=OTHER, num_updates=7, resting=None)]
    sampler = StackSampler(recorder, OWNERS)
    before, usual = threading.active_count(), sys.getswitchinterval()

    sampler.poll(OTHER, is_last=False)
    while sampler.num < 2:
        sum(range(1000))
    sampler.stop()

    line = sampler.line()
    assert line["samples"] >= 2
    assert not recorder.failures
    assert any(row.file == __file__ for row in spent(line))
    assert sampler.stopper is None
    assert sys.getswitchinterval() == pytest.approx(usual)
    assert threading.active_count() == before


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="only 3.11 collects so early")
def test_no_collection_begins_while_the_frames_of_a_thread_are_read() -> None:
    parked, gone_on = threading.Event(), threading.Event()

    def go_down(depth: int) -> None:
        if depth:
            go_down(depth - 1)
        else:
            parked.set()
            gone_on.wait()

    thread = threading.Thread(target=go_down, args=(50,))
    thread.start()
    parked.wait()
    collected_in: list[str] = []
    usual = gc.get_threshold()

    def hear(phase: str, facts: dict[str, Any]) -> None:
        collected_in.append(sys._getframe(1).f_code.co_name)

    gc.callbacks.append(hear)
    try:
        gc.set_threshold(1)
        stack, num_threads = stack_of_thread(thread.ident or 0)
    finally:
        gc.set_threshold(*usual)
        gc.callbacks.remove(hear)
        gone_on.set()
        thread.join()

    assert sum(one.code.co_name == "go_down" for one in stack) == 51
    assert num_threads >= 2
    assert not {"stack_of", "stack_of_thread"} & set(collected_in)
    assert gc.isenabled()


def test_no_value_of_a_thread_lives_on_because_its_frames_were_read() -> None:
    parked, gone_on = threading.Event(), threading.Event()

    class Value:
        pass

    found: list[weakref.ref[Value]] = []

    def hold() -> None:
        value = Value()
        found.append(weakref.ref(value))
        parked.set()
        gone_on.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    parked.wait()
    gc.disable()
    try:
        stack, _ = stack_of_thread(thread.ident or 0)
        gone_on.set()
        thread.join()
        assert any(one.code.co_name == "hold" for one in stack)
        assert found[0]() is None
    finally:
        gc.enable()


def test_a_process_with_several_threads_that_step_is_not_sampled() -> None:
    recorder = Recorder("/nowhere", dict)
    journal = SimpleNamespace(top=OTHER, num_updates=7, resting=None)
    recorder.journals = [journal, journal]
    sampler = StackSampler(recorder, OWNERS)

    assert sampler.poll(OTHER, is_last=False) == ""
    assert sampler.stopper is None


SOURCE = """
import gc, copy, torch
from gc import collect as sweep

def release():
    gc.collect()
    sweep()

def sample(rows):
    listed = [row[0] for row in rows]
    one = torch.tensor(listed)
    two = torch.tensor([row[1] for row in rows])
    return torch.tensor(rows), torch.tensor(5)

def average(ema, model):
    state = model.state_dict()
    for name, value in ema.state_dict().items():
        value.mul_(0.9).add_(state[name], alpha=0.1)
    return copy.deepcopy(model)

def train(model, loader):
    for part in model.parameters():
        part.grad.norm().backward()
    writer.add_histogram("w", model.weight)
    return collection.collect()

class Table:
    def __getitem__(self, index):
        return self.frame.iloc[index]
"""


def row_of(text: str, *, function: str = "", callee: str = "") -> SpentRow:
    """The row of the first instruction with this text."""
    lines = SOURCE.split("\n")
    number = next(i for i, line in enumerate(lines) if text in line)
    begin = lines[number].index(text)
    place = (number + 1, begin, number + 1, begin + len(text))
    return SpentRow("other", "train.py", *place, function, callee, 9, 9, 1.0)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("gc.collect()", "collects_garbage"),
        ("sweep()", "collects_garbage"),
        ("torch.tensor(listed)", "tensor_of_arrays"),
        ("torch.tensor([row[1] for row in rows])", "tensor_of_arrays"),
        ("torch.tensor(rows)", None),
        ("torch.tensor(5)", None),
        ("model.state_dict()", "weights_one_by_one"),
        ("value.mul_(0.9)", "weights_one_by_one"),
        ("copy.deepcopy(model)", None),
        ("part.grad.norm()", None),
        ('writer.add_histogram("w", model.weight)', "histograms"),
        ("collection.collect()", None),
        ("self.frame.iloc[index]", None),
    ],
)
def test_the_source_says_what_a_line_does(text: str, code: str | None) -> None:
    assert find_in_source(ast.parse(SOURCE), row_of(text)) == code


def test_a_row_of_a_frame_is_told_by_the_library_that_it_is_in() -> None:
    row = row_of("self.frame.iloc[index]", function="Table.__getitem__", callee="pandas.core.x")

    assert find_in_source(ast.parse(SOURCE), row) == "row_of_frame"


def test_without_columns_a_line_with_one_call_is_that_call() -> None:
    row = row_of("gc.collect()")._replace(column=None, end_line=None, end_column=None)

    assert find_in_source(ast.parse(SOURCE), row) == "collects_garbage"


def line(fraction: float, **fields: Any) -> SpentLine:
    values: dict[str, Any] = {
        "what": "other",
        "file": "train.py",
        "line": 7,
        "function": "release",
        "callee": "",
        "num_samples": 40,
        "growth": 0.0,
        "text": "gc.collect()",
    }
    return SpentLine(fraction=fraction, **values | fields)


def spent_on(*lines: SpentLine) -> Any:
    time = SpentTime(
        num_samples=200, num_updates=100, step_s=0.1, without_line=0.0, lines=tuple(lines)
    )
    return replace(make_measurement(), spent=time)


def test_a_needless_call_has_its_line_and_what_its_removal_gives_at_most() -> None:
    two = [line(0.3, code="collects_garbage"), line(0.2, line=8, code="collects_garbage")]

    found = find_needless(spent_on(*two), code="collects_garbage")

    assert found is not None
    assert found.where == "train.py:7"
    assert found.evidence[0].value == pytest.approx(0.5)
    assert found.headroom_speedup == pytest.approx(2.0)


@pytest.mark.parametrize(
    "lines",
    [
        [line(0.05, code="collects_garbage")],
        [line(0.3, code="collects_garbage", num_samples=5)],
        [line(0.9)],
    ],
)
def test_little_time_few_samples_and_unknown_lines_are_no_finding(lines: list[SpentLine]) -> None:
    assert find_needless(spent_on(*lines), code="collects_garbage") is None


def growing(growth: float, rest: float = 0.0, num: int = 40) -> Any:
    part = line(0.4, function="Auroc.compute", growth=growth, num_samples=num)
    return spent_on(part, line(0.6, what="forward", growth=rest, num_samples=60))


def test_a_function_that_goes_through_all_that_came_grows_with_the_updates() -> None:
    found = find_growing(growing(0.35))

    assert found is not None
    assert found.names == {"function": "Auroc.compute"}
    values = {one.name: one.value for one in found.evidence}
    assert values["at_first"] == pytest.approx(0.0)
    assert values["at_last"] == pytest.approx(0.08)


def test_what_lies_around_may_grow_a_little_by_chance() -> None:
    assert find_growing(growing(0.36, rest=0.1)) is not None


@pytest.mark.parametrize(
    "make",
    [
        lambda: growing(0.1),
        lambda: growing(0.35, rest=0.3),
        lambda: growing(0.35, num=9),
        lambda: spent_on(line(0.4, what="forward", growth=0.35)),
    ],
)
def test_what_may_be_chance_or_larger_inputs_is_no_growth(make: Callable[[], Any]) -> None:
    assert find_growing(make()) is None
