"""The report and the document of a comparison."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from compare_cases import CASES, single, slower
from documents import check_document
from steptime.cli.run.compare import exit_code_of
from steptime.compare.values import Comparison, Estimate, GateOutcome, Obstacle, TraitChange
from steptime.core.note import Note
from steptime.errors import NotFoundError
from steptime.report.blocks.compare.comparison_report import (
    MAX_CHANGES,
    ComparisonRequest,
    comparison_report,
)
from steptime.report.document.comparison_document import comparison_envelope
from steptime.report.document.envelope import error_envelope
from steptime.report.text.paint_text import print_report
from steptime.report.words.run.compare_words import (
    describe_change,
    describe_obstacle,
    describe_remark,
    describe_trait,
    describe_values,
    signed_percent,
    signed_seconds,
)

PRICED = ComparisonRequest(price=2.5)


def text_of(found: Comparison, *, asked: ComparisonRequest = PRICED, width: int = 100) -> str:
    file = io.StringIO()
    console = Console(file=file, width=width, force_terminal=False, color_system=None)
    print_report(comparison_report(found, asked=asked), console=console)
    return file.getvalue()


def document(found: Comparison, *, asked: ComparisonRequest = PRICED) -> dict[str, Any]:
    code = exit_code_of(found, is_forced=asked.is_forced)
    envelope = comparison_envelope(found, asked=asked, exit_code=code)
    return check_document(envelope, "compare")


@pytest.mark.parametrize("name", CASES)
def test_the_reports_are_golden_and_fit_a_screen(name: str, check_golden: Any) -> None:
    text = text_of(CASES[name]())

    check_golden(f"compare_{name}.txt", text)
    assert max(map(len, text.splitlines())) <= 100
    assert len(text.splitlines()) <= 40


# Exit code, codes of errors, outcome, reason, the gate's outcome, obstacles, remarks.
ANSWERS = {
    "slower": (5, ["gate_not_met"], "slower", None, "failed", [], []),
    "no_difference": (
        *(0, [], "no_difference", None, None, []),
        ["other_lengths", "not_interleaved", "contended"],
    ),
    "passed": (0, [], "no_difference", None, "passed", [], []),
    "single": (4, ["too_noisy"], "too_noisy", "single_runs", "undecided", [], ["not_interleaved"]),
    "two_runs": (4, ["too_noisy"], "too_noisy", "two_runs", "undecided", [], []),
    "unlike": (
        *(2, ["not_comparable", "not_comparable"], "no_difference", None, "passed"),
        *(["other_script", "other_machine"], []),
    ),
    "without_steps": (
        *(3, ["script_failed"], "not_comparable", "too_few_steps", "undecided"),
        *(["too_few_steps", "failed"], ["other_lengths", "not_interleaved"]),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_every_document_fits_the_schema_and_has_the_answer(name: str) -> None:
    answer = document(CASES[name]())

    found = answer["data"]["comparison"]
    assert ANSWERS[name] == (
        answer["exit_code"],
        [error["code"] for error in answer["errors"]],
        found["outcome"],
        found["reason"],
        found["gate"] and found["gate"]["outcome"],
        [obstacle["code"] for obstacle in found["obstacles"]],
        [remark["code"] for remark in found["remarks"]],
    )


def test_the_numbers_of_a_comparison_have_their_intervals_and_its_cost_too() -> None:
    data = document(slower())["data"]

    found, cost = data["comparison"], data["cost"]
    assert found["step"]["a_s"] == pytest.approx(0.1, rel=1e-3)
    assert found["step"]["change"]["value"] == pytest.approx(0.2, rel=1e-3)
    assert found["step"]["change"]["low"] == pytest.approx(0.1752, rel=1e-3)
    assert found["spread"]["degrees"] == 4
    differences = [phase["difference_s"]["value"] for phase in found["phases"]]
    assert sum(differences) == pytest.approx(found["step"]["difference_s"]["value"], rel=1e-4)
    assert cost["price_per_hour"] == 2.5
    assert cost["b"] - cost["a"] == pytest.approx(cost["difference"]["value"])
    assert cost["a"] == pytest.approx(found["finish"]["a_s"] * 2.5 / 3600)
    assert document(slower(), asked=ComparisonRequest())["data"]["cost"] is None
    single = document(CASES["single"]())["data"]
    assert single["cost"]["difference"]["low"] is None
    assert single["comparison"]["step"]["change"]["high"] is None


def test_a_failure_fits_the_schema() -> None:
    found = check_document(error_envelope("compare", NotFoundError("no run")), "compare")

    assert (found["status"], found["errors"][0]["code"]) == ("error", "not_found")


def test_a_narrow_terminal_loses_nothing() -> None:
    narrow = " ".join(text_of(slower(), width=50).split())

    assert "B is slower" in narrow
    assert "argument --workers" in narrow


def test_the_phase_that_most_of_it_went_to_is_named_only_where_it_is_sure() -> None:
    found = slower()
    unsure = tuple(
        replace(phase, difference_s=replace(phase.difference_s, low=-1.0, high=1.0))
        for phase in found.phases
    )

    assert "most of it is in input wait: 10.0 ms in A and 30.0 ms in B (+20.0 ms)" in text_of(found)
    assert "most of it" not in text_of(replace(found, phases=unsure))
    assert "most of it" not in text_of(replace(found, phases=()))


def test_many_changes_are_counted() -> None:
    changes = tuple(TraitChange(what="variable", name=f"V{i}", a=(), b=("set",)) for i in range(30))

    said = text_of(replace(slower(), changes=(*changes, *slower().changes)))

    assert f"and {30 + len(slower().changes) - MAX_CHANGES} more" in said
    assert "argument --workers" in said  # those that decide speed come first


def test_unlike_runs_that_are_judged_anyway_have_their_answer() -> None:
    found = CASES["unlike"]()

    assert "not judged" in text_of(found)
    assert "passed" in text_of(found, asked=ComparisonRequest(is_forced=True))


def test_a_failed_run_is_not_judged_whatever_the_user_asks() -> None:
    failed = Obstacle(code="failed", facts={"run": "x", "end": "code 1"})

    said = text_of(replace(slower(), obstacles=(failed,)), asked=ComparisonRequest(is_forced=True))

    assert "not judged" in said
    assert "--force" not in said


def test_numbers_have_their_sign() -> None:
    assert (signed_percent(0.05), signed_percent(-0.05)) == ("+5.0 %", "-5.0 %")
    assert (signed_percent(0.0), signed_percent(-1e-6)) == ("0.0 %", "0.0 %")
    assert (signed_seconds(0.001), signed_seconds(-0.001)) == ("+1.00 ms", "-1.00 ms")
    assert describe_change(Estimate(value=0.05)) == "+5.0 % (its interval is not known)"


def test_words_that_are_not_in_the_tables_are_shown_as_they_are() -> None:
    assert describe_obstacle(Obstacle(code="new", facts={"a": "1"})) == "new a 1"
    assert describe_remark(Note(code="new", facts={})) == "new"
    assert describe_remark(Note(code="mixed", facts={})) == "mixed"


@pytest.mark.parametrize(
    ("change", "values"),
    [
        (TraitChange(what="variable", name="A", a=(), b=("set",)), ("not set", "set")),
        (TraitChange(what="environment", name="A", a=("1",), b=()), ("1", "not set")),
        (TraitChange(what="argument", name="-x", a=(), b=("",)), ("absent", "given")),
        (TraitChange(what="version", name="torch", a=("1", "2"), b=("3",)), ("1, 2", "3")),
        (
            TraitChange(what="lever", name="autocast", a=(), b=('{"dtype": "bf16"}',)),
            ("off", "bf16"),
        ),
        (
            TraitChange(what="lever", name="x", a=("{}",), b=("off, for it failed",)),
            ("on", "off, for it failed"),
        ),
        (
            TraitChange(what="code", name="a.py", a=("sha256:" + "0" * 64,), b=()),
            ("00000000", "absent"),
        ),
    ],
)
def test_values_of_a_change(change: TraitChange, values: tuple[str, str]) -> None:
    assert describe_values(change) == values


@pytest.mark.parametrize(
    ("what", "name", "title"),
    [
        ("argument", "--lr", "argument --lr"),
        ("argument", "word 2", "word 2 of the command"),
        ("loader", "Rows num_workers", "num_workers of the loader of Rows"),
        ("machine", "num_cores", "num_cores of the machine"),
        ("place", ".", "file system of the working folder"),
        ("place", "data", "file system of data"),
        ("new", "", "new"),
    ],
)
def test_what_was_changed_has_a_name(what: str, name: str, title: str) -> None:
    assert describe_trait(TraitChange(what=what, name=name, a=(), b=("1",))) == title


def test_a_gate_that_is_undecided_says_why() -> None:
    found = single()

    assert found.gate is not None
    assert found.gate.outcome is GateOutcome.UNDECIDED
    assert "no interval to compare with the limit of 5.0 %" in " ".join(text_of(found).split())
