"""The page of a study: what is on it in words, and that no foreign text becomes markup."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import pytest

from page_cases import HOSTILE
from steptime.app.study.study_page import render_study_page
from steptime.diagnose.values.reach_values import PARTS
from steptime.report.blocks.study.hardware_blocks import RESOURCES
from steptime.report.blocks.study.lever_gains import gains_of
from steptime.report.blocks.study.loss_plots import loss_plots
from steptime.report.blocks.study.study_report import StudyPageFacts
from steptime.report.html.paint_html import paint
from steptime.verify.values import LossComparison, LossOverlay
from study_cases import (
    BF16,
    FUSED,
    PASSED,
    STUDY_ID,
    faster,
    make_study,
    speedup,
    trial,
)
from study_page_cases import STUDIES, WATERFALL, compared, hostile_study, tuned

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


# -- what each lever gave


def test_each_lever_of_the_recipe_is_a_step_and_the_rest_is_one_too() -> None:
    study = replace(faster(), speedup=speedup(1.7, 1.6, 1.8))

    first, second, rest = gains_of(study)

    assert (first.added, first.before) == ((BF16,), 1.0)
    assert first.after == pytest.approx(1 / 1.41)
    assert (second.added, second.before) == ((FUSED,), first.after)
    assert second.after == pytest.approx(1 / 1.41 / 1.07)
    assert (rest.added, rest.speedup) == ((), None)
    assert rest.after == pytest.approx(1 / 1.7)


def test_the_way_is_the_one_whose_steps_are_known_best() -> None:
    trials = (
        trial(1, BF16, speedup=speedup(1.78, 0.29, 2.13)),
        trial(2, FUSED, speedup=speedup(1.04, 0.89, 1.28)),
        trial(3, BF16, FUSED, reference=(FUSED,), kind="confirm", speedup=speedup(1.8, 1.7, 1.9)),
        trial(4, BF16, FUSED, reference=(BF16,), kind="confirm", speedup=speedup(1.05, 1.0, 1.1)),
    )

    first, second, *_ = gains_of(replace(faster(), trials=trials))

    assert (first.added, first.speedup) == ((FUSED,), trials[1].speedup)
    assert (second.added, second.speedup) == ((BF16,), trials[2].speedup)


def test_levers_that_came_on_together_are_one_step_in_any_order() -> None:
    bundle = trial(1, FUSED, BF16, speedup=speedup(1.52, 1.4, 1.6))

    (step,) = gains_of(replace(faster(), trials=(bundle,)))

    assert step.added == (BF16, FUSED)
    assert step.speedup == bundle.speedup


def test_a_lever_that_was_timed_by_taking_it_out_is_told_with_the_interval_turned_round() -> None:
    trials = (
        trial(1, BF16, reference=(BF16, FUSED), speedup=speedup(0.8, 0.75, 0.9)),
        trial(2, FUSED, reference=(BF16, FUSED), speedup=speedup(0.7, 0.65, 0.75)),
    )
    study = replace(faster(), trials=trials)

    first, second, _ = gains_of(study)

    assert first.speedup == speedup(1 / 0.7, 1 / 0.75, 1 / 0.65)
    assert second.speedup == speedup(1 / 0.8, 1 / 0.9, 1 / 0.75)


def test_levers_that_were_taken_out_of_a_bundle_are_told_one_by_one() -> None:
    trials = (
        trial(1, BF16, FUSED, speedup=speedup(1.5, 1.4, 1.6, n=8)),
        trial(2, BF16, FUSED, reference=(FUSED,), kind="confirm", speedup=speedup(1.4, 1.3, 1.5)),
        trial(3, BF16, FUSED, reference=(BF16,), kind="confirm", speedup=speedup(1.1, 1.05, 1.2)),
    )

    steps = gains_of(replace(faster(), speedup=speedup(1.54, 1.5, 1.6), trials=trials))

    assert [(step.added, step.speedup) for step in steps] == [
        ((BF16,), trials[1].speedup),
        ((FUSED,), trials[2].speedup),
    ]


def test_of_a_single_lever_the_proof_itself_is_the_step() -> None:
    trials = (
        trial(1, BF16, speedup=speedup(1.2, 1.1, 1.3, n=8)),
        trial(2, BF16, kind="confirm", speedup=speedup(1.5, 1.4, 1.6, n=24)),
    )
    study = replace(faster(), recipe=(BF16,), speedup=trials[1].speedup, trials=trials)

    (step,) = gains_of(study)

    assert step.speedup == trials[1].speedup


def test_levers_that_nobody_told_from_each_other_share_the_last_step() -> None:
    (rest,) = gains_of(replace(faster(), trials=()))

    assert rest.added == (BF16, FUSED)
    assert rest.speedup is None


def test_without_a_recipe_there_is_no_waterfall() -> None:
    assert gains_of(make_study()) == ()
    assert "What each lever gave" not in titles(STUDIES["nothing_helps"]())


def test_without_the_time_of_a_step_the_waterfall_counts_in_percent() -> None:
    facts = replace(tuned(), study=replace(faster(), baseline_step_s=None))

    assert "tr: as written |  | 100.0 % |" in "\n".join(lines_of(facts)).replace("\xa0", " ")


# -- hardware


def test_faster_hardware_is_bounded_by_what_it_holds_of_a_step() -> None:
    lines = lines_of(tuned())

    assert "tr: arithmetic (FLOP/s) | 50.0 ms | 50.0 % | 1.33x" in [
        line.replace("\xa0", " ") for line in lines
    ]
    assert not [line for line in lines if "the link to the device" in line]


@pytest.mark.parametrize(
    "doubt",
    [{"is_conclusive": False}, {"provisional": ("memory",)}, {"parts": ()}, {"step_time_s": None}],
)
def test_without_sure_parts_nothing_is_said_of_hardware(doubt: dict[str, Any]) -> None:
    facts = replace(tuned(), waterfall=replace(WATERFALL, **doubt))

    assert "What faster hardware would change" not in titles(facts)


@pytest.mark.parametrize("waterfall", [None, replace(WATERFALL, parts=(), missing="no_ceilings")])
def test_where_no_run_says_it_the_commands_are_named_that_do(waterfall: Any) -> None:
    lines = lines_of(replace(tuned(), waterfall=waterfall))

    (commands,) = [line for line in lines if "steptime machine" in line]
    assert "⏎steptime run -- python train.py" in commands
    assert commands.endswith(f"⏎steptime report {STUDY_ID}")
    assert not [line for line in lines if "arithmetic (FLOP/s)" in line]


def test_every_resource_is_a_part_of_a_step() -> None:
    assert {name for names in RESOURCES.values() for name in names} <= set(PARTS)


# -- losses


def test_losses_have_their_envelope_and_the_distance_its_limit() -> None:
    part = paint(loss_plots(compared()))

    assert part.text.count("<path") == 5  # an envelope, three lines of losses, and the limit
    assert "range of 3 runs as written, with the last bits changed" in part.text
    assert "the most that passes" in part.text


def test_a_loss_that_is_not_known_breaks_the_line() -> None:
    overlay = LossOverlay(
        updates=(0, 1, 2, 3), baseline=(1.0, None, 3.0, 4.0), candidate=(None,) * 4
    )

    part = paint(loss_plots(LossComparison(curves=(overlay,), num_updates=4)))

    assert [re.sub(r"[\d. ]+", "", d) for d in re.findall(r'd="([^"]*)"', part.text)] == ["M", "ML"]


def test_equal_losses_and_a_single_update_can_be_drawn() -> None:
    overlay = LossOverlay(updates=(7,), baseline=(0.0,), candidate=(0.0,))
    comparison = LossComparison(
        curves=(overlay,), num_updates=1, updates=(7,), distance=(0.0,), limit=(0.0,)
    )

    assert paint(loss_plots(comparison)) is None


def test_the_checks_of_the_quality_are_listed_with_their_limits() -> None:
    lines = outlined(replace(tuned(), study=replace(faster(), quality=PASSED))).lines

    assert any("losses in lockstep: 0.0009 (at most 0.0043)" in line for line in lines)
