"""Loops over elements as findings: what their lines take of a step, and what is said of them."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from steptime.app.run.describe_run import describe_run
from steptime.diagnose.ailments.host.own_python import AILMENTS, find_python_loop
from steptime.diagnose.diagnosis import diagnose
from steptime.diagnose.values.finding import BottleneckKind, Severity
from steptime.measure.fold.code_places import CodePlaces
from steptime.measure.source.loop_marks import LoopMark
from steptime.measure.source.scan import Source
from steptime.measure.values.machine_load import WorkerSummary
from steptime.measure.values.measurement import Measurement
from steptime.measure.values.observations import (
    GcPauses,
    LeverUse,
    PythonLoop,
    RecipeUse,
    Site,
    SourceEdit,
)
from steptime.measure.values.spent_line import SpentLine, SpentTime
from steptime.measure.wall.timed_loops import find_python_loops
from steptime.report.text.print_run import render
from steptime.report.words.run.advice import next_act, trial_levers
from steptime.report.words.run.run_words import describe_finding
from unit.builders import make_measurement

EDIT = SourceEdit(diff="--- a/train.py\n+++ b/train.py\n", keeps="same_numbers")
LOOP = PythonLoop(
    code="random_per_element",
    file="train.py",
    line=31,
    end_line=31,
    text="x = [random.random() for _ in range(n)]",
    phase="other",
    share_of_phase=0.8,
    edit=EDIT,
)


def find(measurement: Measurement) -> Any:
    return find_python_loop(measurement, code=LOOP.code)


def with_loop(loop: PythonLoop = LOOP, **times: Any) -> Measurement:
    return make_measurement(python_loops=(loop,), **times)


# -- the rule


def test_a_loop_takes_its_share_of_its_phase_at_most() -> None:
    found = find(with_loop(compute_s=0.5, other_s=0.5))

    assert found.kind is BottleneckKind.HOST_BOUND
    assert found.cause == "random_per_element"
    assert found.severity is Severity.CRITICAL
    assert found.evidence[0].name == "python_loop"
    assert found.evidence[0].value == pytest.approx(0.4)
    assert found.headroom_speedup == pytest.approx(1 / 0.6)
    assert (found.where, found.where_text) == ("train.py:31", LOOP.text)
    assert found.edit == EDIT


def test_collections_of_garbage_are_no_part_of_a_loop() -> None:
    run = with_loop(compute_s=0.1, other_s=0.9)
    pauses = GcPauses(pauses_per_step=1.0, s_per_step=0.8, fraction=0.8)
    (rank,) = run.ranks

    assert find(run).evidence[0].value == pytest.approx(0.72)
    assert find(replace(run, ranks=(replace(rank, gc=pauses),))) is None


def test_small_loops_and_runs_without_loops_have_no_finding() -> None:
    assert find(make_measurement(other_s=0.5)) is None
    assert find(with_loop(compute_s=1.0, other_s=0.1)) is None
    assert find(with_loop(missing={"other": "no_steady_steps"})) is None


def test_a_loop_of_several_lines_has_no_text() -> None:
    found = find(with_loop(replace(LOOP, end_line=36), other_s=0.5))

    assert (found.where, found.where_text) == ("train.py:31-36", None)


def test_a_loop_in_a_data_set_takes_its_part_of_the_wait() -> None:
    loop = replace(LOOP, phase="fetch", share_of_phase=1.0)

    found = find(with_loop(loop, compute_s=0.5, input_wait_s=0.5, fetch_s=0.4))

    assert found.evidence[0].value == pytest.approx(0.4)


def test_a_loop_in_workers_takes_their_time_side_by_side_and_the_wait_at_most() -> None:
    loop = replace(LOOP, phase="fetch", share_of_phase=1.0)
    workers = WorkerSummary(
        num_workers=2, num_batches=100, fetch_s_per_batch=0.4, collate_s_per_batch=0.0
    )
    times = {"compute_s": 0.5, "input_wait_s": 0.5, "missing": {"fetch": "loads_in_workers"}}

    assert find(with_loop(loop, **times)) is None
    found = find(with_loop(loop, workers=workers, **times))
    assert found.evidence[0].value == pytest.approx(0.2)  # two of them, 0.4 s each
    slow = replace(workers, fetch_s_per_batch=1.6)
    found = find(with_loop(loop, workers=slow, **times))
    assert found.evidence[0].value == pytest.approx(0.5)


def test_a_loop_takes_no_more_than_the_samples_of_its_lines() -> None:
    """What pandas takes in the line before was timed together with the loop."""

    def sampled(line: int, fraction: float) -> SpentLine:
        return SpentLine(
            what="other",
            file=LOOP.file,
            line=line,
            function="draw",
            callee="",
            fraction=fraction,
            num_samples=round(400 * fraction),
            growth=0.0,
        )

    lines = (sampled(LOOP.line - 1, 0.3), sampled(LOOP.line, 0.2))
    spent = SpentTime(num_samples=400, num_updates=400, step_s=1.0, without_line=0.0, lines=lines)
    loop = replace(LOOP, share_of_phase=1.0)

    found = find(with_loop(loop, other_s=0.5, spent=spent))

    assert found.evidence[0].value == pytest.approx(0.245, abs=0.001)


LIVE = replace(LOOP, code="stack_of_list", edit=replace(EDIT, is_live=True))


def test_a_loop_whose_edit_a_lever_can_make_ends_in_its_command() -> None:
    measurement = with_loop(LIVE, other_s=0.5)
    found = find_python_loop(measurement, code=LIVE.code)
    assert found is not None

    assert trial_levers(found, measurement).levers == ("vectorized_loops",)
    bare = replace(found, edit=EDIT)
    assert trial_levers(bare, measurement).missing == "not_here"
    act = next_act(measurement, diagnose(measurement))
    assert act is not None
    assert "--levers vectorized_loops -- " in str(act.command)


@pytest.mark.parametrize(("phase", "names"), [("fetch", True), ("other", False)])
def test_a_wait_for_data_names_the_lever_where_the_loop_is_in_the_data(
    phase: str, *, names: bool
) -> None:
    loop = replace(LIVE, phase=phase, share_of_phase=1.0)
    measurement = with_loop(loop, compute_s=0.5, input_wait_s=0.5, fetch_s=0.4)
    (found,) = [one for one in diagnose(measurement).findings if one.cause == "fetch"]

    assert ("vectorized_loops" in trial_levers(found, measurement).levers) is names


@pytest.mark.parametrize(("error", "is_found"), [(None, False), ("ValueError: changed", True)])
def test_a_run_with_the_lever_on_no_longer_has_the_loop(
    error: str | None, *, is_found: bool
) -> None:
    use = LeverUse(name="vectorized_loops", settings={}, is_in_guest=True, error=error)
    recipe = RecipeUse(path="tuned.toml", study_id="1", speedup=None, levers=(use,))
    measurement = replace(with_loop(LIVE, other_s=0.5), recipe=recipe)

    assert (find_python_loop(measurement, code=LIVE.code) is not None) is is_found


def test_it_names_the_bottleneck_where_nothing_else_did() -> None:
    diagnosis = diagnose(with_loop(compute_s=0.4, other_s=0.6))

    assert diagnosis.kind is BottleneckKind.HOST_BOUND
    assert diagnosis.findings[0].cause == "random_per_element"


def test_beside_others_its_share_of_the_cpu_time_bounds_it() -> None:
    cpu_s = {"forward": 0.01, "backward": 0.02, "optimizer": 0.01, "other": 0.9}
    busy = with_loop(compute_s=0.5, other_s=0.5, cpu_s=cpu_s, others_cores=3.0)

    found = next(one for one in diagnose(busy).findings if one.cause == LOOP.code)

    assert found.held_by is not None
    assert found.held_by.value == "same_load"
    assert found.evidence[0].value == pytest.approx(0.9 * 0.8)


@pytest.mark.parametrize("row", AILMENTS, ids=lambda row: row.cause)
def test_the_sentence_says_what_the_lines_take_and_what_is_left(row: Any) -> None:
    loop = replace(LOOP, code=row.cause)
    found = find_python_loop(with_loop(loop, compute_s=0.5, other_s=0.5), code=row.cause)
    assert found is not None

    text = describe_finding(found, 1.0)

    assert "The lines around take 40.0 % of a step." in text
    assert "Without that loop a step would take at least" in text
    assert "at most 1.67x faster" in text


# -- the measurement


def mark(**fields: Any) -> LoopMark:
    site = ("/nowhere/train.py", 40, 31)
    made = LoopMark(
        code="random_per_element",
        file="/nowhere/train.py",
        line=31,
        end_line=31,
        text="x",
        what="other",
        site=site,
        diff="--- a\n",
        keeps="same_numbers",
    )
    return replace(made, **fields)


def site(line: int, end_line: int, s_per_step: float | None) -> Site:
    return Site(
        what="other",
        file="train.py",
        line=line,
        end_line=end_line,
        calls_per_step=1.0,
        s_per_step=s_per_step,
    )


def loops(*marks: LoopMark, sites: tuple[Site, ...]) -> tuple[PythonLoop, ...]:
    places = CodePlaces(cwd="/nowhere", source=Source(loops=marks))
    return find_python_loops(places, sites)


def test_a_loop_has_the_share_of_its_site() -> None:
    (found,) = loops(mark(), sites=(site(40, 31, 0.3), site(33, 34, 0.1)))

    assert (found.place, found.phase) == ("train.py:31", "other")
    assert found.share_of_phase == pytest.approx(0.75)
    assert found.edit == SourceEdit(diff="--- a\n", keeps="same_numbers")


def test_a_loop_whose_site_was_not_timed_is_left_out() -> None:
    assert loops(mark(), sites=(site(33, 34, 0.1),)) == ()
    assert loops(mark(), sites=(site(40, 31, None),)) == ()


def test_markers_in_a_loop_cut_it_into_sites_that_add_up() -> None:
    inside = mark(site=("/nowhere/train.py", 32, 32))

    (found,) = loops(mark(), inside, sites=(site(40, 31, 0.3), site(32, 32, 0.1)))

    assert found.share_of_phase == pytest.approx(1.0)


def test_a_loop_of_a_data_set_has_all_of_its_phase() -> None:
    (found,) = loops(mark(what="fetch", site=None, diff=None, keeps=None), sites=())

    assert (found.phase, found.share_of_phase, found.edit) == ("fetch", 1.0, None)


def test_the_report_shows_the_edit() -> None:
    diff = "--- a/train.py\n+++ b/train.py\n@@ -3,3 +3,3 @@\n a\n-    x = slow\n+    x = fast\n b\n"
    measurement = with_loop(
        replace(LOOP, edit=SourceEdit(diff=diff, keeps="other_random_numbers")), other_s=1.0
    )
    console = Console(file=io.StringIO(), width=100)

    render(describe_run(measurement, diagnose(measurement)), console=console)

    lines = [line.strip() for line in console.file.getvalue().splitlines()]  # type: ignore[attr-defined]
    assert "-    x = slow" in lines
    assert "+    x = fast" in lines
    assert "the random numbers are other ones:" in " ".join(lines)
