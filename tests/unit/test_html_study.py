"""The page of a study: what is on it in words, and that no foreign text becomes markup."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from page_cases import HOSTILE
from steptime.app.study.study_page import render_study_page
from steptime.report.blocks.study.loss_plots import loss_plots
from steptime.report.blocks.study.study_report import StudyPageFacts
from steptime.report.html.paint_html import paint
from steptime.verify.values import LossOverlay
from study_cases import (
    PASSED,
    faster,
    make_study,
)
from study_page_cases import STUDIES, compared, hostile_study, tuned

BLOCKS = {"h1", "h2", "h3", "p", "tr", "pre", "summary", "li", "title", "figcaption", "div"}


class _Outline(HTMLParser):
    """One line for each title, row and paragraph, without the drawings."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.elements: list[str] = []
        self.attributes: set[str] = set()
        self._is_silent = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(tag)
        self.attributes |= {name for name, _ in attrs}
        self._is_silent = tag == "style"
        if tag in BLOCKS:
            self.lines.append(f"{tag}: ")
        elif tag in ("td", "th") and not self.lines[-1].endswith(": "):
            self.lines[-1] += " | "
        elif tag in ("i", "span", "strong") and self.lines and self.lines[-1][-1] != " ":
            self.lines[-1] += " "

    def handle_endtag(self, tag: str) -> None:
        self._is_silent = False

    def handle_data(self, data: str) -> None:
        if self.lines and not self._is_silent:
            self.lines[-1] += data.replace("\n", "⏎")


def outlined(facts: StudyPageFacts) -> _Outline:
    found = _Outline()
    found.feed(render_study_page(facts))
    found.close()
    return found


def lines_of(facts: StudyPageFacts) -> list[str]:
    told = (line.rstrip() for line in outlined(facts).lines)
    return [line for line in told if not line.endswith(":") or len(line) > 12]


def titles(facts: StudyPageFacts) -> list[str]:
    return [line[4:] for line in outlined(facts).lines if line.startswith("h2: ")]


@pytest.mark.parametrize("name", ["tuned", "refused", "nothing_helps", "interrupted", "failed"])
def test_the_outline_is_golden(name: str, check_golden: Callable[[str, str], None]) -> None:
    check_golden(f"study_page_{name}.txt", "\n".join(lines_of(STUDIES[name]())) + "\n")


@pytest.mark.parametrize("name", STUDIES)
def test_the_page_needs_no_script_and_no_network(name: str) -> None:
    page, seen = render_study_page(STUDIES[name]()), outlined(STUDIES[name]())

    assert "script-src &#x27;none&#x27;" in page
    assert "script" not in seen.elements
    assert not {"src", "srcset"} & seen.attributes
    assert set(re.findall(r'href="(.)', page)) <= {"#"}


@pytest.mark.parametrize("text", HOSTILE)
def test_no_text_becomes_markup(text: str) -> None:
    plain, hostile = outlined(hostile_study("plain")), outlined(hostile_study(text))

    assert hostile.elements == plain.elements


def test_sections_without_content_are_left_out() -> None:
    found = titles(StudyPageFacts(study=make_study(trials=())))

    assert found == ["Undecided", "How it was tried"]


def test_thousands_of_trials_make_a_small_page_with_the_rest_folded_away() -> None:
    facts = STUDIES["endless"]()

    page = render_study_page(facts)

    assert len(page) < 1_000_000
    assert "2,936 more" in page
    assert page.partition("<details>")[0].count('class="forest"') == 64
    assert "2,500 more are in the document of --json." in page


# -- losses


def test_losses_are_drawn_over_each_other() -> None:
    part = paint(loss_plots(compared()))

    assert part.text.count("<path") == 2
    assert "with the levers" in part.text


def test_a_loss_that_is_not_known_breaks_the_line() -> None:
    overlay = LossOverlay(
        updates=(0, 1, 2, 3), baseline=(1.0, None, 3.0, 4.0), candidate=(None,) * 4
    )

    part = paint(loss_plots((overlay,)))

    assert [re.sub(r"[\d. ]+", "", d) for d in re.findall(r'd="([^"]*)"', part.text)] == ["M", "ML"]


def test_equal_losses_and_a_single_update_can_be_drawn() -> None:
    overlay = LossOverlay(updates=(7,), baseline=(0.0,), candidate=(0.0,))

    assert paint(loss_plots((overlay,))) is None


def test_the_checks_of_the_quality_are_listed_with_their_limits() -> None:
    lines = outlined(replace(tuned(), study=replace(faster(), quality=PASSED))).lines

    assert any("losses in lockstep: 0.0009 (at most 0.0043)" in line for line in lines)
