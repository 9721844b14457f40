"""What is drawn, as the plotting library got it; how it looks is tested in a browser."""

from __future__ import annotations

from dataclasses import replace

import pytest

pytest.importorskip("bokeh", reason="the extra steptime[report] is not installed")

from page_cases import EVENTS, PAGES, START, gpt, make_devices, make_host, make_steps, two_ranks
from report_cases import CASES
from steptime.measure.values.over_time import Event, HostPoint, RunSeries, StepPoint
from steptime.report.blocks.run.run_report import PageFacts
from steptime.report.html.html_canvas import Canvas, Line
from steptime.report.html.html_plots import Plots, draw
from steptime.report.html.run_page import render_page

LIMIT_BYTES = 2_000_000


def plots_of(facts: PageFacts) -> Plots:
    return draw(facts.document.measurement, facts.series, facts.stalls, facts.shifts)


def titles(facts: PageFacts) -> list[str]:
    return [plot.title for plot in plots_of(facts).plots]


def test_a_run_has_its_steps_events_phases_and_machine() -> None:
    assert titles(gpt()) == [
        "Step time",
        "Beside the steps",
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


def test_nothing_observed_is_nothing_drawn_and_no_library() -> None:
    facts = replace(gpt(), series=RunSeries())
    assert plots_of(facts) == Plots()


def test_what_was_not_observed_has_no_plot() -> None:
    host = tuple(
        HostPoint(t_unix_s=p.t_unix_s, dt_s=1.0, busy_cores=1.0, job_cores=0.5) for p in make_host()
    )
    assert titles(replace(gpt(), series=RunSeries(host=host))) == ["Cores kept busy"]


def test_steps_are_told_by_kind_in_the_legend() -> None:
    steps = plots_of(gpt()).plots[0]
    assert [name for _, name in steps.legend][:3] == ["counted", "warm-up", "outlier"]
    assert "evaluation (behind)" in [name for _, name in steps.legend]
    assert steps.note is not None
    assert "above the scale" in steps.note


@pytest.mark.parametrize("name", CASES)
def test_every_kind_of_run_can_be_drawn_without_a_series(name: str) -> None:
    m = CASES[name]()
    assert draw(m, RunSeries(), (), ()) == Plots()


def test_the_page_of_a_long_run_of_many_devices_stays_small() -> None:
    m = gpt().document.measurement
    long = RunSeries(
        host=make_host(num=20_000),
        devices=make_devices(num=3_000, num_devices=8),
        steps=make_steps(m, num=4_000),
        events=tuple(replace(e, t_unix_s=e.t_unix_s + i) for i in range(60) for e in EVENTS),
    )
    facts = replace(gpt(), series=long)
    assert len(render_page(facts, plots_of(facts)).encode()) < LIMIT_BYTES


def test_numbers_that_are_none_are_no_reason_to_fail() -> None:
    odd = tuple(
        StepPoint(rank=0, index=i, end_unix_s=START + i, step_time_s=s, wall_s={"forward": s})
        for i, s in enumerate((float("nan"), float("inf"), 0.1, 0.0))
    )
    event = Event(what="of another kind", rank=3, t_unix_s=START - 5, count=2)
    facts = replace(gpt(), series=RunSeries(steps=odd, events=(event,)))
    assert len(plots_of(facts).plots) == 3


def test_values_that_were_not_observed_leave_a_gap() -> None:
    canvas = Canvas(started_unix_s=0.0, ended_unix_s=10.0)
    lines = [Line(name="a", color="#000000", values=[1.0, None])]
    drawing = canvas.lines("t", [1.0, 2.0], lines, unit="W")
    assert drawing is not None
    data = drawing.figure.renderers[0].data_source.data
    assert list(data["x"]) == [1.0, 2.0]
    assert data["y0"][0] == 1.0
    assert data["y0"][1] != data["y0"][1]


def test_no_line_is_drawn_of_nothing() -> None:
    canvas = Canvas(started_unix_s=0.0, ended_unix_s=10.0)
    assert canvas.lines("t", [1.0], [Line(name="a", color="#000", values=[None])], unit="s") is None
    assert canvas.lines("t", [], [], unit="s") is None


def test_the_scripts_of_the_page_are_those_that_its_policy_names() -> None:
    page = render_page(gpt(), plots_of(gpt()))
    assert page.count("<script>") == 3
    assert page.count("sha256-") == 3
    assert "http-equiv" in page
