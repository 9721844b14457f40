"""When a run that stood still is a finding, how bad, and in which words."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from steptime.core.codec import from_json, to_json
from steptime.core.process_end import ProcessEnd, RunState
from steptime.diagnose.ailments.ranks.desynced import find_desync
from steptime.diagnose.ailments.ranks.stalled import find_stall, worst_stall
from steptime.diagnose.diagnosis import diagnose
from steptime.diagnose.values.finding import BottleneckKind, Severity
from steptime.measure.values.desync import Desync
from steptime.measure.values.measurement import Measurement
from steptime.measure.values.stall import StackFrame, Stall, StalledRank, ThreadStack
from steptime.report.blocks.run.stall_blocks import (
    describe_ranks,
    describe_stall,
    format_ranks,
    stack_lines,
)
from unit.builders import make_measurement

KILLED = ProcessEnd(state=RunState.KILLED, signal=15)
STACK = ThreadStack(
    pid=101,
    thread="MainThread",
    frames=(StackFrame(function="main", file="/p/train.py", line=31),),
    is_main=True,
    is_active=False,
)


def make_rank(rank: int | None, waits_in: str | None, line: int = 31, **fields: Any) -> StalledRank:
    values: dict[str, Any] = {"pid": 101 + (rank or 0), "num_steps": 30, "stacks": (STACK,)}
    where = f"train.py:{line}"
    return StalledRank(rank=rank, waits_in=waits_in, where=where, **{**values, **fields})


def make_stall(*ranks: StalledRank, duration_s: float | None = None, **fields: Any) -> Stall:
    """A stall of 12 s when it was seen; rank 0 alone waits for a lock if nothing is said."""
    return Stall(
        began_unix_s=1000.0,
        seen_unix_s=1012.0,
        usual_step_s=0.012,
        limit_s=10.0,
        ranks=ranks or (make_rank(0, "lock"),),
        duration_s=duration_s,
        **fields,
    )


def measurement_with(*stalls: Stall, **fields: Any) -> Measurement:
    return make_measurement(stalls=stalls, **fields)


def test_without_stalls_there_is_no_finding() -> None:
    assert find_stall(make_measurement()) is None


def test_a_run_that_never_went_on_is_critical_and_heads_the_report() -> None:
    diagnosis = diagnose(measurement_with(make_stall(), end=KILLED))

    first = diagnosis.findings[0]
    assert (first.cause, first.severity, first.where) == ("stall", Severity.CRITICAL, "train.py:31")
    assert diagnosis.kind is BottleneckKind.COMPUTE_BOUND


def test_the_end_of_a_run_that_finished_is_no_stall() -> None:
    assert find_stall(measurement_with(make_stall())) is None


@pytest.mark.parametrize(
    ("lost_s", "severity"),
    [(3.0, Severity.INFO), (15.0, Severity.WARNING), (30.0, Severity.CRITICAL)],
)
def test_a_stall_that_went_on_is_judged_by_its_share_of_the_run(
    lost_s: float, severity: Severity
) -> None:
    found = find_stall(measurement_with(make_stall(duration_s=lost_s), duration_s=60.0))

    assert found is not None
    assert found.severity is severity


def test_the_rank_that_is_waited_for_gives_the_line() -> None:
    ranks = (make_rank(0, "collective", 40), make_rank(1, "lock", 31))
    found = find_stall(measurement_with(make_stall(*ranks, culprits=(1,)), end=KILLED))

    assert found is not None
    assert (found.cause, found.where) == ("stalled_rank", "train.py:31")
    evidence = {item.name: item.value for item in found.evidence}
    assert evidence["culprit_rank"] == 1
    assert evidence["stall_time"] == 12.0
    assert evidence["stalled_after"] == 30


def test_the_worst_stall_is_the_one_that_lasts_then_the_longest() -> None:
    short, long, lasting = make_stall(duration_s=11), make_stall(duration_s=99), make_stall()

    assert worst_stall([short, long]) is long
    assert worst_stall([short, lasting, long]) is lasting


def test_a_stall_survives_the_way_through_json() -> None:
    measurement = measurement_with(make_stall(culprits=(0,)))

    assert from_json(Measurement, to_json(measurement)) == measurement


# -- ranks that lost each other


def with_desync(*, duration_s: float | None = None, what: str = "operation") -> Measurement:
    """Two ranks that lost each other."""
    desync = Desync(what=what, culprits=(1,), others=(0,), where="sub/train.py:11")
    stall = make_stall(make_rank(0, "collective", 10), make_rank(1, "collective", 11))
    stall = replace(stall, desync=desync, culprits=(1,), duration_s=duration_s)
    return measurement_with(stall, end=KILLED)


def test_what_a_rank_called_is_a_finding_beside_the_stall() -> None:
    first, second = diagnose(with_desync()).findings[:2]

    assert (first.cause, second.cause) == ("stalled_rank", "desync")
    assert (second.severity, second.where) == (Severity.CRITICAL, "sub/train.py:11")
    assert (second.names or {})["what"] == "operation"
    assert {item.name: item.value for item in second.evidence}["culprit_rank"] == 1
    assert second.site is not None
    assert (second.site.file, second.site.line) == ("sub/train.py", 11)


@pytest.mark.parametrize(
    ("what", "severity"), [("python", Severity.INFO), ("operation", Severity.CRITICAL)]
)
def test_a_rank_comes_back_from_python_but_not_from_another_call(
    what: str, severity: Severity
) -> None:
    found = find_desync(with_desync(duration_s=12.0, what=what))

    assert found is not None
    assert found.severity is severity


def test_a_run_that_failed_because_of_it_has_the_finding_without_a_stall() -> None:
    (stall,) = with_desync().stalls
    found = find_desync(make_measurement(desync=stall.desync, end=KILLED))

    assert found is not None
    assert (found.cause, found.severity) == ("desync", Severity.CRITICAL)
    assert find_desync(make_measurement(end=KILLED)) is None


def test_without_a_line_there_is_no_site() -> None:
    (stall,) = with_desync().stalls
    assert stall.desync is not None
    found = find_desync(make_measurement(desync=replace(stall.desync, where=None), end=KILLED))

    assert found is not None
    assert (found.site, found.where) == (None, None)


# -- words


def test_ranks_that_stand_alike_share_a_sentence() -> None:
    ranks = [make_rank(i, "collective", 40) for i in (0, 2, 3, 4)] + [make_rank(1, "input", 20)]

    assert describe_ranks(ranks, (1,)) == (
        "ranks 0, 2-4 wait in a collective at train.py:40, for rank 1",
        "rank 1 waits for data at train.py:20",
    )


def test_how_long_and_whether_it_went_on() -> None:
    assert describe_stall(make_stall())[0] == (
        "no step for 12.0 s after 30 steps of 12.0 ms when its stacks were taken"
    )
    assert describe_stall(make_stall(duration_s=16.0))[0] == (
        "no step for 16.0 s after 30 steps of 12.0 ms; then it went on"
    )


def test_without_a_stack_there_is_the_reason() -> None:
    missing = ThreadStack(pid=101, thread="", is_main=True, missing="tracing is not permitted")
    rank = make_rank(0, "lock", stacks=(missing,))

    assert describe_ranks([rank]) == ("rank 0: no stack: tracing is not permitted",)


def test_a_process_without_a_rank_is_named_by_its_id() -> None:
    assert describe_ranks([make_rank(None, None, pid=77)]) == ("process 77 stands at train.py:31",)


def test_many_places_are_cut_short() -> None:
    ranks = [make_rank(i, "lock", i) for i in range(9)]

    assert len(describe_ranks(ranks)) == 5
    assert describe_ranks(ranks)[-1] == "and 5 more"


def test_a_stack_reads_like_a_traceback() -> None:
    assert stack_lines(make_rank(0, "lock")) == (
        "process 101, thread MainThread, idle",
        "  main  /p/train.py:31",
    )


def test_ranks_in_a_row_are_shortened() -> None:
    assert format_ranks([3, 1, 2, 7]) == "1-3, 7"
