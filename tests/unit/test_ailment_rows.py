"""The rows of the ailments hang together: rules, thresholds, words and levers.

That a row has all its parts needs no test: none has a default. That a finding has a row needs none
either: a rule makes it of one.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
import re
from collections import defaultdict
from pathlib import Path
from string import Formatter
from types import ModuleType

import pytest

from steptime import levers
from steptime.diagnose import ailments
from steptime.diagnose.ailments.ailment import Ailment, Asked, Rule
from steptime.diagnose.ailments.all_ailments import AILMENTS, ailment_of, rules_asked
from steptime.diagnose.ailments.said.library_warnings import MESSAGES
from steptime.diagnose.ailments.scale import Threshold
from steptime.diagnose.shifts import lasting_shifts
from steptime.diagnose.values.finding import BottleneckKind, Finding, Severity
from steptime.levers.base import Preserves
from steptime.measure.values.measurement import INNER_PHASES, PHASES, SPANS

FOLDER = Path(ailments.__file__).parent.parent


def modules() -> list[ModuleType]:
    found = pkgutil.walk_packages(ailments.__path__, f"{ailments.__name__}.")
    return [lasting_shifts, *(importlib.import_module(one.name) for one in found)]


def name_of(rule: Rule) -> str:
    return rule.func.__name__ if isinstance(rule, functools.partial) else rule.__name__


def words_of(row: Ailment) -> list[str]:
    removal = () if row.removal is None else (row.removal.condition, *row.removal.parts.values())
    texts = (row.sentence, row.explanation, row.remedy, *removal)
    return [text for text in texts if text is not None]


def label(row: Ailment) -> str:
    return row.cause or (row.kind.value if row.kind else "")


# -- rules and thresholds


def test_every_rule_has_a_row() -> None:
    defined = {
        name
        for module in modules()
        for name, value in vars(module).items()
        if re.match(r"find_", name) and getattr(value, "__module__", "") == module.__name__
    } - {"find_missing_signals", "find_shifts", "find_causes"}

    assert {name_of(row.rule) for row in AILMENTS} == defined


def test_every_threshold_belongs_to_a_row_and_is_called_as_it_is_named() -> None:
    defined = {
        name: value
        for module in modules()
        for name, value in vars(module).items()
        if isinstance(value, Threshold)
    }

    assert {one.name for one in defined.values()} == set(defined)
    used = {one.name for row in AILMENTS for one in row.thresholds}
    assert used == set(defined)
    assert all(one.why for one in defined.values())


def test_no_two_rows_are_of_the_same_kind_and_cause() -> None:
    words = [(row.kind, row.cause) for row in AILMENTS]

    assert len(set(words)) == len(words)


def test_every_kind_has_a_row() -> None:
    assert {row.kind for row in AILMENTS} == {*BottleneckKind, None}


def test_each_rule_is_asked_on_one_occasion() -> None:
    rules = [rule for asked in Asked for rule in rules_asked(asked)]

    assert len(rules) == len(set(rules))


def test_a_finding_of_another_version_has_no_row() -> None:
    strange = Finding(kind=None, cause="gremlin", severity=Severity.INFO, evidence=())

    assert ailment_of(strange) is None


# -- words


@pytest.mark.parametrize("row", AILMENTS, ids=label)
def test_the_words_are_sentences(row: Ailment) -> None:
    for text in (row.sentence, row.explanation, row.remedy):
        assert text is None or text.endswith(".")
    assert row.sentence[0].islower() or row.sentence[0] in "{TCP"  # it follows a colon
    assert (row.title is None) == (row.kind is not None)


@pytest.mark.parametrize("row", AILMENTS, ids=label)
def test_the_evidence_that_words_name_is_given_by_a_rule(row: Ailment) -> None:
    source = "".join(path.read_text("utf-8") for path in FOLDER.rglob("*.py"))
    source += "".join(re.sub(r"\(\?P<(\w+)>", r'"\1"', one.pattern) for one in MESSAGES)
    known = {*PHASES, *INNER_PHASES, *SPANS, "cause", "excess", "phase_before", "phase_after"}
    known |= {f"{phase}_mean" for phase in PHASES}
    known |= {f"num_{span}s" for span in SPANS} | {f"{span}_total" for span in SPANS}
    known |= {f"{one}_{end}" for one in _changes() for end in ("before", "after")}
    for text in words_of(row):
        for _, name, _, _ in Formatter().parse(text):
            assert name is None or name in known or f'"{name}"' in source, name


def _changes() -> set[str]:
    source = Path(lasting_shifts.__file__).read_text("utf-8")
    return set(re.findall(r'"([a-z_]+)"', source))


@pytest.mark.parametrize("row", [row for row in AILMENTS if row.removal], ids=label)
def test_what_a_removal_names_in_parts_is_evidence_of_the_rule(row: Ailment) -> None:
    source = "".join(path.read_text("utf-8") for path in FOLDER.rglob("*.py"))

    assert row.removal is not None
    assert all(f'"{name}"' in source for name in row.removal.parts)


# -- levers


def test_levers_that_a_row_names_relieve_its_kind_and_the_other_way_round() -> None:
    by_row: dict[str, set[str]] = defaultdict(set)
    for row in AILMENTS:
        for name in row.levers:
            by_row[name] |= set() if row.kind is None else {row.kind.value}

    known = {name: levers.load(name) for name in levers.NAMES}
    # A row leads to what can be tried at once; what changes the training is asked for by name.
    expected = {
        name: set(lever.relieves)
        for name, lever in known.items()
        if lever.preserves is not Preserves.NOTHING or name in by_row
    }
    assert by_row == expected
