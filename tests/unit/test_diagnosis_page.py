"""The page on diagnosis and the rules agree: each rule stands there, with its thresholds."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from steptime.diagnose.ailments import thresholds
from steptime.diagnose.ailments.shifted import find_shift
from steptime.diagnose.ailments.verdicts import find_no_steps
from steptime.diagnose.diagnosis import ALWAYS, DOUBTS, RULES

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "diagnosis.md"
SECTION = re.compile(r"^## Rules and thresholds$(.*?)^## ", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`(\w+)`")


def rows() -> list[list[str]]:
    """The table's cells, without its head."""
    section = SECTION.search(PAGE.read_text("utf-8"))
    assert section is not None
    lines = [line for line in section[1].splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def documented() -> dict[str, float]:
    """Thresholds by name, as the page states them."""
    found = {}
    for _, names, value, _ in rows():
        for name in CODE.findall(names):
            found[name] = 1 / 3 if value == "1/3" else float(value)
    return found


def constants() -> dict[str, float]:
    return {name: value for name, value in vars(thresholds).items() if name.isupper()}


def name_of(rule: Callable[..., object]) -> str:
    return rule.func.__name__ if isinstance(rule, functools.partial) else rule.__name__


def test_every_threshold_stands_on_the_page_with_its_value() -> None:
    assert documented() == pytest.approx(constants())


def test_every_threshold_has_a_reason_there_and_here() -> None:
    assert all(reason for *_, value, reason in rows() if value)
    source = inspect.getsource(thresholds)
    for name in constants():
        assert re.search(rf'^{name} = .*\n"""', source, re.MULTILINE), name


def test_every_rule_stands_in_the_table_and_none_else() -> None:
    listed = {name for first, *_ in rows() for name in CODE.findall(first)}
    # The last two are asked of what the tuples do not hold: too few steps, and the run's course.
    asked: tuple[Callable[..., object], ...] = (*ALWAYS, *RULES, *DOUBTS, find_no_steps, find_shift)
    assert listed == {name_of(rule) for rule in asked}


def test_every_cause_on_the_page_is_given_by_a_rule() -> None:
    causes = re.findall(
        r"^\|.*?\| (?:`[A-Z_]+`|null) \| `(\w+)` \|", PAGE.read_text("utf-8"), re.MULTILINE
    )
    folder = PAGE.parents[2] / "src" / "steptime" / "diagnose"
    source = "".join(path.read_text("utf-8") for path in folder.rglob("*.py"))
    assert len(causes) >= 30
    assert [cause for cause in causes if f'"{cause}"' not in source] == []
