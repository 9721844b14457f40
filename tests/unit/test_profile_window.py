"""When the guest opens its window under a profiler, and when it lets go."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from steptime.guest.profile.profile_window import MAX_WAIT, DeviceRange, ProfileWindow, Wish


class FakeTool:
    """Notes what it is told."""

    can_repeat = True

    def __init__(self) -> None:
        self.said: list[str] = []
        self.reason: str | None = None
        self.fails_at: str | None = None

    def _say(self, word: str) -> None:
        self.said.append(word)
        if self.fails_at == word:
            raise RuntimeError(word)

    def why_not(self) -> str | None:
        return self.reason

    def warm_up(self) -> None:
        self._say("warm up")

    def begin(self) -> None:
        self._say("begin")

    def begin_step(self, number: int) -> None:
        self._say(f"step {number}")

    def end_step(self) -> None:
        pass

    def end(self, path: str | None) -> str | None:
        self._say("end" if path is None else "write")
        return None if path is None else f"{Path(path).name}.pt.trace.json"

    def drop(self) -> None:
        self._say("drop")


@dataclass
class FakeRecorder:
    path: str = "rank-0.jsonl"
    run: str = "run"
    zero_ns: int = 0
    failures: list[str] = field(default_factory=list)

    def fail(self, place: str) -> None:
        self.failures.append(place)


class Training:
    """Updates as a journal would tell of them."""

    def __init__(self, *, first_step: int = 5, tool: str = "torch") -> None:
        self.recorder = FakeRecorder()
        self.is_profiled = False  # as a watcher of switches
        self.num_spans = 0  # as a journal
        self.disturbed: list[int] = []
        self.num_updates = 0
        self.busy: set[int] = set()  # updates behind which operators are counted
        wish = Wish(f"{tool},{first_step},")
        self.window = ProfileWindow(None, self.recorder, wish, self)  # type: ignore[arg-type]
        self.tool = FakeTool()
        self.window.tool = self.tool  # type: ignore[assignment]

    def disturb(self) -> None:
        self.disturbed.append(self.num_updates)

    def steps(self, num: int, *, optimizers: int = 1) -> None:
        for _ in range(num):
            for optimizer in range(optimizers):
                self.num_updates += 1
                self.window.end_update(
                    self,  # type: ignore[arg-type]
                    optimizer,
                    may_begin=self.num_updates not in self.busy,
                )

    def span(self) -> None:
        self.num_spans += 2

    @property
    def line(self) -> dict[str, Any]:
        text = self.window.pop_line()
        assert text is not None
        found: dict[str, Any] = json.loads(text)
        return found


def test_one_step_warms_up_and_three_are_recorded() -> None:
    training = Training(first_step=5)
    training.steps(20)

    assert training.tool.said == ["warm up", "begin", "step 5", "step 6", "step 7", "write"]
    line = training.line
    assert (line["file"], line["steps"], line["first"]) == ("rank-0.pt.trace.json", 3, 5)
    assert (line["is_cut"], line["is_mixed"]) == (False, False)
    assert training.window.is_over


def test_the_steps_it_makes_longer_are_marked_that_of_the_writing_too() -> None:
    training = Training(first_step=5)
    training.steps(20)

    assert training.disturbed == [4, 5, 6, 7, 8]  # each marks the update that follows it


def test_nobody_is_told_that_a_profiler_was_left_on() -> None:
    training = Training(first_step=5)
    training.steps(6)
    assert training.is_profiled
    training.steps(4)
    assert not training.is_profiled


def test_a_step_that_evaluated_is_not_where_it_begins() -> None:
    training = Training(first_step=5)
    training.steps(3)
    training.span()
    training.steps(1)
    assert training.tool.said == []
    training.steps(1)
    assert training.tool.said == ["warm up"]


def test_it_keeps_out_of_the_way_of_what_counts_operators() -> None:
    training = Training(first_step=5)
    training.busy = {4, 5, 6}
    training.steps(20)

    assert training.line["first"] == 8


def test_a_window_with_an_evaluation_in_it_is_thrown_away_and_tried_again() -> None:
    training = Training(first_step=5)
    training.steps(6)
    training.span()
    training.steps(20)

    assert training.tool.said.count("warm up") == 2
    assert training.tool.said.count("end") == 1
    line = training.line
    assert (line["tries"], line["is_mixed"], line["steps"]) == (1, False, 3)


def test_where_every_step_saves_it_is_kept_in_the_end_and_says_so() -> None:
    training = Training(first_step=5)
    for _ in range(3 * MAX_WAIT + 30):
        training.span()
        training.steps(1)

    line = training.line
    assert (line["is_mixed"], line["tries"], line["steps"]) == (True, 2, 3)


def test_where_optimizers_take_turns_steps_begin_with_the_first() -> None:
    training = Training(first_step=5)
    training.steps(12, optimizers=2)

    assert training.tool.said == ["warm up", "begin", "step 5", "step 6", "step 7", "write"]
    assert training.disturbed[:3] == [8, 9, 10]


def test_a_script_that_ends_before_says_that_it_was_too_short() -> None:
    training = Training(first_step=30)
    training.steps(10)
    training.window.finish()

    assert (training.line["missing"], training.tool.said) == ("too_few_updates", ["drop"])


@pytest.mark.parametrize(("num", "missing"), [(4, "ended_in_window"), (5, "ended_in_window")])
def test_a_script_that_ends_in_the_first_step_of_the_window_leaves_none(
    num: int, missing: str
) -> None:
    training = Training(first_step=5)
    training.steps(num)
    training.window.finish()

    assert training.line["missing"] == missing


def test_a_script_that_ends_in_the_second_step_leaves_the_first() -> None:
    training = Training(first_step=5)
    training.steps(6)
    training.window.finish()

    line = training.line
    assert (line["steps"], line["is_cut"]) == (1, True)


def test_a_profiler_of_the_scripts_own_ends_ours() -> None:
    training = Training(first_step=5)
    training.steps(6)
    training.window.give_up("own_profiler")
    training.steps(10)

    assert training.tool.said[-1] == "drop"
    assert training.line["missing"] == "own_profiler"


def test_a_reason_not_to_begin_is_kept() -> None:
    training = Training(first_step=5)
    training.tool.reason = "own_profiler"
    training.steps(10)

    assert (training.line["missing"], training.tool.said) == ("own_profiler", ["drop"])


@pytest.mark.parametrize("where", ["warm up", "begin", "step 6", "write"])
def test_a_profiler_that_raises_is_counted_and_goes_no_further(where: str) -> None:
    training = Training(first_step=5)
    training.tool.fails_at = where
    training.steps(20)

    assert training.line["missing"] == "failed"
    assert training.recorder.failures[0] == "profile"
    assert training.window.is_over


def test_what_collects_once_is_not_tried_again() -> None:
    training = Training(first_step=5)
    training.tool.can_repeat = False
    training.steps(6)
    training.span()
    training.steps(10)

    line = training.line
    assert (line["is_mixed"], line["tries"], line["steps"]) == (True, 0, 3)


class FakeCuda:
    def __init__(self, calls: list[str], *, has_device: bool) -> None:
        self.calls = calls
        self.has_device = has_device
        self.profiler = self.nvtx = self

    def is_initialized(self) -> bool:
        return self.has_device

    def synchronize(self) -> None:
        self.calls.append("synchronize")

    def start(self) -> None:
        self.calls.append("start")

    def stop(self) -> None:
        self.calls.append("stop")

    def range_push(self, name: str) -> None:
        self.calls.append(name)

    def range_pop(self) -> None:
        self.calls.append("pop")


def make_range(*, has_device: bool) -> tuple[DeviceRange, list[str]]:
    calls: list[str] = []

    class Torch:
        cuda = FakeCuda(calls, has_device=has_device)

    return DeviceRange(Torch), calls


def test_a_tool_of_the_system_is_told_when_to_collect() -> None:
    training = Training(first_step=5, tool="nsys")
    tool, calls = make_range(has_device=True)
    training.window.tool = tool
    training.steps(20)

    steps = [word for i in range(5, 8) for word in (f"ProfilerStep#{i}", "pop")]
    assert calls == ["synchronize", "start", *steps, "synchronize", "stop"]
    line = training.line
    assert (line["tool"], line["file"], line["steps"]) == ("nsys", None, 3)


def test_without_a_device_there_is_nothing_to_collect() -> None:
    training = Training(first_step=5, tool="nsys")
    tool, calls = make_range(has_device=False)
    training.window.tool = tool
    training.steps(20)

    assert (training.line["missing"], calls) == ("no_device", [])


def test_a_script_that_ends_while_it_collects_ends_the_collection() -> None:
    training = Training(first_step=5, tool="nsys")
    tool, calls = make_range(has_device=True)
    training.window.tool = tool
    training.steps(5)
    training.window.finish()

    assert calls[-1] == "stop"
