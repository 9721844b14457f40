"""The page in a real browser: drawn, quiet, alone, and harmless whatever things are called."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("bokeh", reason="the extra steptime[report] is not installed")

from browser import Browser, a_browser, needs_chromium
from page_cases import HOSTILE, PAGES, gpt, hostile, make_devices, two_ranks
from steptime.app.study.study_page import render_study_page
from steptime.measure.values.over_time import Event, RunSeries
from steptime.report.blocks.run.run_report import PageFacts
from steptime.report.html.html_plots import draw
from steptime.report.html.run_page import render_page
from study_page_cases import STUDIES

pytestmark = needs_chromium

OTHER = "every page is drawn four times: two of them show all widths and all themes"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with a_browser(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


def written(folder: Path, facts: PageFacts) -> tuple[Path, int]:
    """The page in a file, and how many plots it has."""
    plots = draw(facts.document.measurement, facts.series, facts.stalls, facts.shifts)
    path = folder / "report.html"
    path.write_text(render_page(facts, plots), encoding="utf-8")
    return path, len(plots.plots)


@pytest.mark.parametrize(
    ("width", "theme"),
    [
        (1400, "light"),
        (420, "dark"),
        pytest.param(1400, "dark", marks=pytest.mark.slow(OTHER)),
        pytest.param(420, "light", marks=pytest.mark.slow(OTHER)),
    ],
)
@pytest.mark.parametrize("name", PAGES)
def test_all_plots_are_drawn_without_a_complaint_or_a_request(
    browser: Browser, tmp_path: Path, name: str, width: int, theme: str
) -> None:
    path, num_plots = written(tmp_path, PAGES[name]())

    browser.open(path, width=width, is_dark=theme == "dark")

    assert browser.wait_until_drawn() == num_plots
    assert browser.complaints() == []
    assert browser.requests() == [path.as_uri()]
    assert browser.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize(("width", "theme"), [(1400, "light"), (420, "dark")])
@pytest.mark.parametrize("name", ["refused", "failed", "hostile"])
def test_the_page_of_a_study_fits_and_is_quiet(
    browser: Browser, tmp_path: Path, name: str, width: int, theme: str
) -> None:
    path = tmp_path / "report.html"
    path.write_text(render_study_page(STUDIES[name]()), encoding="utf-8")

    browser.open(path, width=width, is_dark=theme == "dark")

    assert browser.complaints() == []
    assert browser.requests() == [path.as_uri()]
    assert browser.evaluate("document.documentElement.scrollWidth") <= width
    assert browser.evaluate("document.title").startswith("steptime ")


def test_the_same_names_that_harm_nothing_in_text_harm_nothing_in_plots(
    browser: Browser, tmp_path: Path
) -> None:
    everything = "".join(HOSTILE)
    facts = hostile(everything)
    devices = tuple(replace(p, device=everything, throttle=(everything,)) for p in make_devices())
    event = Event(
        what=everything, rank=0, t_unix_s=facts.document.measurement.started_unix_s, text=everything
    )
    series = replace(facts.series, devices=devices, events=(event,))
    path, num_plots = written(tmp_path, replace(facts, series=series))

    browser.open(path)

    assert browser.wait_until_drawn() == num_plots
    assert browser.complaints() == []
    assert browser.requests() == [path.as_uri()]
    assert browser.evaluate("document.title").startswith("steptime ")
    assert browser.evaluate("document.querySelectorAll('img, section script').length") == 0


def middle_of_event(browser: Browser) -> dict[str, float]:
    """Where the first mark of the plot of events stands in the window."""
    return browser.evaluate(
        """(() => {
          const plot = Bokeh.documents[0].roots()[1];
          const view = Bokeh.index.get_one(plot);
          view.el.scrollIntoView({block: "center"});
          const box = view.el.getBoundingClientRect();
          const frame = view.frame;
          const data = plot.renderers[0].data_source.data;
          const x = frame.x_scale.compute((data.left[0] + data.right[0]) / 2);
          const y = frame.y_scale.compute("GC");
          return {x: box.x + x, y: box.y + y};
        })()"""
    )


def tooltip(browser: Browser) -> dict[str, Any]:
    """Its text, and how many elements it has that only markup would have made."""
    return browser.evaluate(
        """new Promise((done) => setTimeout(() => {
          const deep = (node) => [node, ...[...node.querySelectorAll("*")].flatMap(
            (n) => n.shadowRoot ? deep(n.shadowRoot) : [])];
          const tips = deep(document).flatMap((r) => [...r.querySelectorAll(".bk-Tooltip")]);
          const shown = tips.flatMap((t) => t.shadowRoot ? deep(t.shadowRoot) : []);
          done({
            text: shown.map((r) => r.textContent).join(" "),
            num_made: shown.flatMap((r) => [...r.querySelectorAll("img, b")]).length,
          });
        }, 300))"""
    )


def test_hovering_shows_text_as_text(browser: Browser, tmp_path: Path) -> None:
    text = '<img src=x onerror="document.title=1"><b>bold</b>'
    facts = gpt()
    start = facts.document.measurement.started_unix_s
    event = Event(what="gc", rank=0, t_unix_s=start + 30, seconds=0.5, text=text)
    facts = replace(facts, series=RunSeries(steps=facts.series.steps, events=(event,)))
    path, _ = written(tmp_path, facts)
    browser.open(path)
    browser.wait_until_drawn()

    place = middle_of_event(browser)
    browser.call("Input.dispatchMouseEvent", type="mouseMoved", x=place["x"], y=place["y"])
    shown = tooltip(browser)

    assert text in shown["text"]
    assert shown["num_made"] == 0
    assert browser.complaints() == []


def test_a_zoom_of_one_plot_is_a_zoom_of_all(browser: Browser, tmp_path: Path) -> None:
    path, _ = written(tmp_path, two_ranks())
    browser.open(path)
    browser.wait_until_drawn()

    starts = browser.evaluate(
        """(() => {
          const plots = Bokeh.documents[0].roots();
          plots[0].x_range.start = 12.5;
          return plots.map((plot) => plot.x_range.start);
        })()"""
    )

    assert set(starts) == {12.5}


def test_a_finger_on_a_plot_scrolls_the_page_and_sideways_zooms(
    browser: Browser, tmp_path: Path
) -> None:
    path, _ = written(tmp_path, gpt())
    browser.open(path, width=420)
    browser.wait_until_drawn()
    browser.evaluate("new Promise((done) => setTimeout(done, 300))")

    layers = browser.evaluate(
        """Bokeh.documents[0].roots().map((plot) =>
          getComputedStyle(Bokeh.index.get_one(plot).canvas_view.events_el).touchAction)"""
    )

    assert set(layers) == {"pan-y pinch-zoom"}


def test_in_print_the_ink_is_dark_at_night_too(browser: Browser, tmp_path: Path) -> None:
    path, _ = written(tmp_path, gpt())
    browser.open(path, is_dark=True)
    browser.wait_until_drawn()
    browser.evaluate(
        """window.inks = []; addEventListener("beforeprint", () =>
          window.inks.push(Bokeh.documents[0].roots()[0].below[0].major_label_text_color))"""
    )

    browser.call("Page.printToPDF")

    assert browser.evaluate("window.inks") == ["#4b525c"]
    assert browser.complaints() == []
