"""Answers of a bench on disk, and a search that goes on over them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from steptime.tune.search.bench import (
    ArmResult,
    Baseline,
    ComparisonResult,
    LiveRequest,
    ProcessRequest,
)
from steptime.tune.study.recorded_answers import AskedQuestion, RecordedBench
from steptime.tune.values.study_values import WELL, Applied, State
from steptime.verify.values import Outcome, Verdict

FAST: State = (Applied(name="fast", settings={"count": 2}),)


class CountingBench:
    """Answers each question with how many it had, and takes ten seconds for it."""

    def __init__(self) -> None:
        self.num_asked = 0
        self.now_s = 100.0

    def clock(self) -> float:
        return self.now_s

    def _spend(self) -> float:
        self.num_asked += 1
        self.now_s += 10.0
        return float(self.num_asked)

    def observe(self) -> Baseline:
        raise NotImplementedError

    def compare_live(self, request: LiveRequest) -> ComparisonResult:
        ratio = self._spend()
        arm = ArmResult(
            state=request.states[1],
            log_ratios=(ratio,),
            cpu_log_ratios=(ratio,),
            ending=WELL,
        )
        return ComparisonResult(ending=WELL, reference_step_s=0.1, arms=(arm,))

    def compare_processes(self, request: ProcessRequest) -> ComparisonResult:
        ratio = self._spend()
        arm = ArmResult(
            state=request.candidate, log_ratios=(ratio,), cpu_log_ratios=(), ending=WELL
        )
        return ComparisonResult(ending=WELL, arms=(arm,))

    def judge(self, state: State) -> Verdict:
        self._spend()
        return Verdict(outcome=Outcome.PASS, level="L0")

    def time_left_s(self) -> float:
        raise NotImplementedError


def record(bench: CountingBench, folder: Path, **more: Callable[..., None]) -> RecordedBench:
    return RecordedBench(bench, folder, budget_s=60.0, clock=bench.clock, **more)


def compare(recorded: RecordedBench, state: State, *, num_pairs: int = 1) -> ComparisonResult:
    return recorded.compare_processes(
        ProcessRequest(reference=(), candidate=state, num_pairs=num_pairs)
    )


def test_an_answer_is_on_disk_before_it_is_given(tmp_path: Path) -> None:
    compare(record(CountingBench(), tmp_path), FAST)

    assert [path.name for path in tmp_path.iterdir()] == ["000.json"]


def test_the_same_questions_are_answered_from_disk(tmp_path: Path) -> None:
    first, second = CountingBench(), CountingBench()
    recorded = record(first, tmp_path)
    live = LiveRequest(fixed=FAST, states=((), FAST), num_rounds=3)
    answers = [compare(recorded, FAST), recorded.compare_live(live), recorded.judge(FAST)]

    again = record(second, tmp_path)

    assert [compare(again, FAST), again.compare_live(live), again.judge(FAST)] == answers
    assert second.num_asked == 0


def test_a_study_goes_on_where_it_was_cut_off(tmp_path: Path) -> None:
    compare(record(CountingBench(), tmp_path), FAST)
    bench = CountingBench()
    asked: list[AskedQuestion] = []
    again = record(bench, tmp_path, tell=asked.append)

    compare(again, FAST)
    again.judge(FAST)

    assert bench.num_asked == 1
    assert [(one.ask, one.is_replayed) for one in asked] == [
        ("compare_processes", True),
        ("judge", False),
    ]


def test_time_spent_by_an_earlier_call_counts(tmp_path: Path) -> None:
    compare(record(CountingBench(), tmp_path), FAST)
    again = record(CountingBench(), tmp_path)

    left_s = [again.time_left_s()]
    compare(again, FAST)
    left_s.append(again.time_left_s())
    again.judge(FAST)
    left_s.append(again.time_left_s())

    assert left_s == [60.0, 50.0, 40.0]


def test_the_time_left_changes_with_answers_alone(tmp_path: Path) -> None:
    bench = CountingBench()
    recorded = record(bench, tmp_path)
    compare(recorded, FAST)

    bench.now_s += 5.0

    assert recorded.time_left_s() == 50.0


def test_another_question_makes_all_later_answers_void(tmp_path: Path) -> None:
    recorded = record(CountingBench(), tmp_path)
    for num_pairs in (1, 2, 3):
        compare(recorded, FAST, num_pairs=num_pairs)
    bench = CountingBench()
    again = record(bench, tmp_path)

    for num_pairs in (1, 5, 3):
        compare(again, FAST, num_pairs=num_pairs)

    assert bench.num_asked == 2
    assert again.time_left_s() == 30.0  # the answer that stood, and two new ones


@pytest.mark.parametrize("text", ["", "{", '{"schema": 1}', '{"schema": 99, "ask": "x"}', "[]"])
def test_an_answer_that_was_cut_off_is_asked_for_again(tmp_path: Path, text: str) -> None:
    (tmp_path / "000.json").write_text(text)
    bench = CountingBench()

    compare(record(bench, tmp_path), FAST)

    assert bench.num_asked == 1
