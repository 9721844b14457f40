"""A start that takes much of a long run is told with its largest part; a short run is not."""

from dataclasses import replace

import pytest

from steptime.core.process_end import ProcessEnd, RunState
from steptime.diagnose.ailments.compute.unused_graphs import find_unused_graphs
from steptime.diagnose.ailments.host.beside_steps import find_start_up
from steptime.diagnose.ailments.input.waiting import find_checkpoint
from steptime.diagnose.diagnosis import diagnose
from steptime.diagnose.values.finding import Severity
from steptime.measure.values.measurement import Span
from steptime.measure.values.observations import Operators
from steptime.measure.values.wall_time import Checkpoints, WallPart, WallTime
from steptime.report.words.run.run_words import describe_finding, fill_in
from unit.builders import make_measurement


def run_of(steps_s, *, is_open=False, checkpoints=None, **parts_s):
    """A run with these parts, the first of which has a line."""
    parts = [WallPart(name=name, total_s=value_s) for name, value_s in parts_s.items()]
    if parts:
        parts[0] = replace(parts[0], where="train.py:12")
    parts.append(WallPart(name="steps", total_s=steps_s))
    wall = WallTime(
        total_s=sum(part.total_s for part in parts),
        parts=tuple(parts),
        is_open=is_open,
        checkpoints=checkpoints,
    )
    return make_measurement(wall_time=wall)


@pytest.mark.parametrize(
    ("part", "cause", "words"),
    [
        ("imports", "slow_imports", "Most of it was imports, 1 min 40 s."),
        ("data_set", "slow_data_set", "Most of it was the data set, 1 min 40 s."),
        ("compile", "slow_compile", "Most of it was compiling, 1 min 40 s."),
        ("warmup", "start_up", "Most of it was warm-up, 1 min 40 s."),
        ("setup", "start_up", "what else came before the first step"),
    ],
)
def test_the_largest_part_gives_the_cause(part, cause, words):
    found = find_start_up(run_of(300.0, **{part: 100.0, "interpreter": 1.0}))

    assert (found.kind, found.cause, found.severity) == (None, cause, Severity.INFO)
    assert found.where == "train.py:12"
    text = describe_finding(found, None)
    assert text.startswith(
        "1 min 41 s passed until the steps went at their pace, 25.2 % of the run."
    )
    assert words in text
    assert "Without the start the run would be at most 1.34x faster." in text


def test_where_more_time_starts_than_trains_it_is_a_warning():
    assert find_start_up(run_of(200.0, imports=220.0)).severity is Severity.WARNING


@pytest.mark.parametrize(
    "measurement",
    [
        run_of(10.0, imports=30.0),  # a trial
        run_of(900.0, imports=100.0),  # worth it
        run_of(200.0, imports=220.0, is_open=True),  # it may go on for days
        replace(run_of(200.0, imports=220.0), end=ProcessEnd(state=RunState.FAILED, exit_code=1)),
        make_measurement(),
        run_of(200.0, evaluation=220.0),  # another finding has it
    ],
)
def test_silent_where_nobody_would_want_to_hear_it(measurement):
    assert find_start_up(measurement) is None


def test_it_is_no_verdict_on_the_steps():
    long = run_of(300.0, imports=100.0)
    assert diagnose(long).kind is diagnose(make_measurement()).kind


def saved(**parts_s):
    names = ("gather_s", "copy_s", "serialize_s", "write_s", "other_s")
    times_s = dict.fromkeys(names, 0.0) | parts_s
    found = Checkpoints(num=9, total_s=sum(times_s.values()), **times_s)
    span = Span(name="checkpoint", total_s=25.0, num_steps_touched=9)
    return replace(run_of(30.0, checkpoints=found), spans=(span,))


@pytest.mark.parametrize(
    ("part", "words"),
    [("write_s", "writing, 80.0 %"), ("serialize_s", "pickling, 80.0 %"), ("copy_s", "copying")],
)
def test_the_part_that_takes_most_of_a_checkpoint_is_named(part, words):
    found = find_checkpoint(saved(**{part: 20.0, "other_s": 5.0}))

    assert found.cause == "checkpoint"
    assert f"Most of that is {words}" in describe_finding(found, None)


def test_no_part_is_named_where_none_takes_half():
    found = find_checkpoint(saved(write_s=8.0, copy_s=8.0, serialize_s=9.0))

    assert found.names is None
    assert fill_in("{largest_part}", found) is None


# -- graphs that no backward call uses


@pytest.mark.parametrize(
    ("num", "used", "is_found"), [(90, 20, True), (90, 31, False), (9, 0, False), (90, 90, False)]
)
def test_graphs_that_no_backward_call_uses_are_found(
    num: int, used: int, *, is_found: bool
) -> None:
    seen = Operators(num=100, num_nodes=num, num_nodes_used=used)
    found = find_unused_graphs(make_measurement(operators=seen))

    assert (found is not None) == is_found
    if found is not None:
        text = describe_finding(found, 1.0)
        assert text.startswith("70 of 90 operators that autograd noted in a step")


def test_without_a_look_at_the_graphs_nothing_is_said_of_them() -> None:
    assert find_unused_graphs(make_measurement(operators=Operators(num=100))) is None
