"""The page in a real browser: drawn, quiet, alone, and harmless whatever things are called."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from browser import Browser, a_browser, needs_chromium
from page_cases import HOSTILE, PAGES, gpt, hostile, make_devices
from steptime.app.study.study_page import render_study_page
from steptime.measure.values.over_time import Event, RunSeries
from steptime.report.blocks.run.course_plots import course_sections
from steptime.report.blocks.run.run_report import PageFacts
from steptime.report.html.run_page import render_page
from study_page_cases import STUDIES

pytestmark = needs_chromium

NUM_DRAWN = "document.querySelectorAll('.chart > svg').length"

OTHER = "every page is drawn four times: two of them show all widths and all themes"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with a_browser(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


def written(folder: Path, facts: PageFacts) -> tuple[Path, int]:
    """The page in a file, and how many plots it has."""
    path = folder / "report.html"
    path.write_text(render_page(facts), encoding="utf-8")
    return path, sum(len(section.blocks) for section in course_sections(facts))


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

    assert browser.evaluate(NUM_DRAWN) == num_plots > 0
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

    assert browser.evaluate(NUM_DRAWN) == num_plots > 0
    assert browser.complaints() == []
    assert browser.requests() == [path.as_uri()]
    assert browser.evaluate("document.title").startswith("steptime ")
    assert browser.evaluate("document.querySelectorAll('img, section script').length") == 0


def test_what_a_mark_says_is_text(browser: Browser, tmp_path: Path) -> None:
    text = '<img src=x onerror="document.title=1"><b>bold</b>'
    facts = gpt()
    start = facts.document.measurement.started_unix_s
    event = Event(what="gc", rank=0, t_unix_s=start + 30, seconds=0.5, text=text)
    facts = replace(facts, series=RunSeries(steps=facts.series.steps, events=(event,)))
    path, _ = written(tmp_path, facts)
    browser.open(path)

    tips = browser.evaluate(
        "[...document.querySelectorAll('svg title')].map((tip) => tip.textContent)"
    )

    assert [tip for tip in tips if tip.startswith("GC: ")] == [f"GC: 500 ms, rank 0: {text}"]
    assert browser.complaints() == []
