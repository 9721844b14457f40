"""What is drawn over the time of a run; how it looks is tested in a browser."""

from __future__ import annotations

from dataclasses import replace

import pytest

from page_cases import EVENTS, PAGES, START, gpt, make_devices, make_host, make_steps, two_ranks
from report_cases import CASES
from steptime.app.run.describe_run import describe_run
from steptime.measure.values.over_time import Event, HostPoint, RunSeries, StepPoint
from steptime.report.blocks.run.course_plots import course_sections
from steptime.report.blocks.run.run_report import PageFacts
from steptime.report.blocks.values import LinePlot
from steptime.report.html.line_plot import draw_plot
from steptime.report.html.run_page import render_page

LIMIT_BYTES = 1_000_000


def plots_of(facts: PageFacts) -> list[LinePlot]:
    blocks = [block for section in course_sections(facts) for block in section.blocks]
    return [block for block in blocks if isinstance(block, LinePlot)]


def titles(facts: PageFacts) -> list[str]:
    return [plot.title for plot in plots_of(facts)]


def test_a_run_has_its_steps_phases_and_machine() -> None:
    assert titles(gpt()) == [
        "Step time",
        "What a step is made of, over time",
        "Cores kept busy",
        "Memory of the machine",
        "Disk and swap",
        "Network",
        "Clock of the cores",
    ]


def test_ranks_and_devices_have_plots_where_there_are_any() -> None:
    assert "A rank's own time per step, without communication" in titles(two_ranks())
    shown = titles(PAGES["devices"]())
    assert {"Power", "Temperature", "Device busy: a kernel runs"} <= set(shown)


def test_nothing_observed_is_nothing_drawn() -> None:
    assert course_sections(replace(gpt(), series=RunSeries())) == []


def test_what_was_not_observed_has_no_plot() -> None:
    host = tuple(
        HostPoint(t_unix_s=p.t_unix_s, dt_s=1.0, busy_cores=1.0, job_cores=0.5) for p in make_host()
    )
    facts = replace(gpt(), series=RunSeries(host=host))
    assert titles(facts) == ["Cores kept busy"]
    assert [curve.name for curve in plots_of(facts)[0].curves] == ["the training", "others", ""]


def test_steps_have_their_kind_and_what_is_rare_says_which_step_it_was() -> None:
    steps = plots_of(gpt())[0]
    curves = {curve.name: curve for curve in steps.curves}
    assert {"counted", "warm-up", "outlier", "median", "GC", "recompile"} <= set(curves)
    assert curves["counted"].tips == []
    assert all(tip.startswith("step ") for tip in curves["outlier"].tips)
    (recompile,) = curves["recompile"].tips
    assert recompile.startswith("recompile: 1.40 s, rank 0, step 31: tensor 'x' size mismatch")
    assert {"evaluation", "checkpoint"} <= {one.name for one in steps.stretches}
    assert "lie above the scale" in steps.note


def test_what_stood_still_and_what_changed_are_shaded_behind_the_steps() -> None:
    names = [one.name for one in plots_of(two_ranks())[0].stretches]
    assert names[-2:] == ["the run stood still", "a lasting change"]


def test_phases_stand_on_each_other_and_end_at_the_mean_of_a_step() -> None:
    forward, backward = (
        StepPoint(rank=0, index=i, end_unix_s=START + i, step_time_s=0.3, wall_s=wall_s)
        for i, wall_s in enumerate(({"forward": 0.1, "backward": 0.2},) * 2)
    )
    facts = replace(gpt(), series=RunSeries(steps=(forward, backward)))
    first, second = plots_of(facts)[1].curves
    assert (first.name, second.name) == ("forward", "backward")
    assert set(first.spread) == {(0.0, 0.1)}
    assert {tuple(round(end, 6) for end in pair) for pair in second.spread} == {(0.1, 0.3)}


@pytest.mark.parametrize("name", CASES)
def test_every_kind_of_run_can_be_drawn_without_a_series(name: str) -> None:
    facts = replace(gpt(), document=describe_run(CASES[name](), None), series=RunSeries())
    assert plots_of(facts) == []


def test_the_page_of_a_long_run_of_many_devices_stays_small() -> None:
    m = gpt().document.measurement
    long = RunSeries(
        host=make_host(num=20_000),
        devices=make_devices(num=3_000, num_devices=8),
        steps=make_steps(m, num=4_000),
        events=tuple(replace(e, t_unix_s=e.t_unix_s + i) for i in range(60) for e in EVENTS),
    )
    assert len(render_page(replace(gpt(), series=long)).encode()) < LIMIT_BYTES


def test_numbers_that_are_none_are_no_reason_to_fail() -> None:
    odd = tuple(
        StepPoint(rank=0, index=i, end_unix_s=START + i, step_time_s=s, wall_s={"forward": s})
        for i, s in enumerate((float("nan"), float("inf"), 0.1, 0.0))
    )
    event = Event(what="of another kind", rank=3, t_unix_s=START - 5, count=2)
    drawn = plots_of(replace(gpt(), series=RunSeries(steps=odd, events=(event,))))
    assert len(drawn) == 2
    assert all(draw_plot(plot) is not None for plot in drawn)


def test_values_that_were_not_observed_leave_a_gap() -> None:
    host = tuple(
        replace(p, clock_hz=None if 20 < i < 40 else p.clock_hz) for i, p in enumerate(make_host())
    )
    (clock,) = (
        plot
        for plot in plots_of(replace(gpt(), series=RunSeries(host=host)))
        if plot.title == "Clock of the cores"
    )
    assert [y for _, y in clock.curves[0].points].count(None) == 19
    drawn = draw_plot(clock)
    assert drawn is not None
    assert drawn.text.count("<path") == 2  # the line in two pieces


def test_the_page_needs_no_script() -> None:
    page = render_page(gpt())
    assert "<script" not in page
    assert "script-src &#x27;none&#x27;" in page
